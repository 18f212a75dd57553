/* Tests of case. */
#include <criterion/criterion.h>
