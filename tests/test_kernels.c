/* Tests of kernels. */
#include <criterion/criterion.h>
