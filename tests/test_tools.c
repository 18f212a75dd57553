/* Tests of tools. */
#include <criterion/criterion.h>
