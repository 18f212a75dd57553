/* Tests of host. */
#include <criterion/criterion.h>
