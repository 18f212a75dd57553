/* Tests of threads. */
#include <criterion/criterion.h>
