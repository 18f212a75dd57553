/* The exponential of attention's CPU kernels. */
#include "vectors.h"

#define LOG2_E 1.4426950408889634f

/* 2^x for x <= 0, relative error 2.4e-7; exactly 0 below -126, so for -inf too; NaN stays NaN. A
 * polynomial, minimax of 2^f on [-0.5, 0.5], times a power of two made from its bits. */
static floats power_of_2(floats x)
{
    const floats magic = (floats)(12582912.0f); /* 1.5 * 2^23 rounds to an integer when added */
    const floats shifted = x + magic;
    const floats f = x - (shifted - magic);
    floats p = f * 1.3276476e-3f + 9.6755410e-3f;
    p = p * f + 5.5507131e-2f;
    p = p * f + 2.4022120e-1f;
    p = p * f + 6.9314694e-1f;
    p = p * f + 1.0000001f;
    const floats power = as_floats((as_ints(shifted) << 23) + (ints)(0x3f800000));
    return select(p * power, (floats)(0.0f), x < -126.0f);
}
