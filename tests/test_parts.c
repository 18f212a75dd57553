/* Tests of parts. */
#include <criterion/criterion.h>
