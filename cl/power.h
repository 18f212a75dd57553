/* The exponential of attention's CPU kernels. */
#define LOG2_E 1.4426950408889634f

/* 2^x for x <= 0, relative error 2.4e-7; exactly 0 below -126, so for -inf too; NaN stays NaN. A
 * polynomial, minimax of 2^f on [-0.5, 0.5], times a power of two made from its bits. */
static float8 power_of_2(float8 x)
{
    const float8 magic = (float8)(12582912.0f); /* 1.5 * 2^23 rounds to an integer when added */
    const float8 shifted = x + magic;
    const float8 f = x - (shifted - magic);
    float8 p = f * 1.3276476e-3f + 9.6755410e-3f;
    p = p * f + 5.5507131e-2f;
    p = p * f + 2.4022120e-1f;
    p = p * f + 6.9314694e-1f;
    p = p * f + 1.0000001f;
    const float8 power = as_float8((as_int8(shifted) << 23) + (int8)(0x3f800000));
    return select(p * power, (float8)(0.0f), x < -126.0f);
}
