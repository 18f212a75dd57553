/* Tests of attention. */
#include <criterion/criterion.h>
