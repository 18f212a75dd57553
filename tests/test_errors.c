/* Tests of errors. */
#include <criterion/criterion.h>
