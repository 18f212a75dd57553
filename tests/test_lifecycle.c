/* Tests of lifecycle. */
#include <criterion/criterion.h>
