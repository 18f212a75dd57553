/* Tests of layer. */
#include <criterion/criterion.h>
