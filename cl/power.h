/* Exponentials of vectors. Drivers' own take twice as long, to be exact to the last bit.
 *
 * Before it is included floats, as_floats and as_ints must be there, as in vectors.h. */
#define LOG2_E 1.4426950408889634f

/* 2^x for x <= 127.5, relative error 2.4e-7 from -126 on; exactly 0 below -126.5, so for -inf too.
 * A polynomial, minimax of 2^f on [-0.5, 0.5], times a power of two made from its bits, which is 0
 * for -127. NaN stays NaN. */
static floats power_of_2(floats x)
{
    /* 1.5 * 2^23 rounds to an integer when added; 127 is what a float's exponent has for 0. */
    const floats magic = (floats)(12582912.0f + 127.0f);
    x = select(x, (floats)(-127.0f), x < -127.0f);
    const floats shifted = x + magic;
    const floats f = x - (shifted - magic);
    floats p = f * 1.3276476e-3f + 9.6755410e-3f;
    p = p * f + 5.5507131e-2f;
    p = p * f + 2.4022120e-1f;
    p = p * f + 6.9314694e-1f;
    p = p * f + 1.0000001f;
    return p * as_floats(as_ints(shifted) << 23);
}

/* e^x, relative error 2.4e-7 + 1e-7 |x|; 0 below 2^-126.5, infinity above 2^127.5. */
static floats exponential(floats x)
{
    x *= LOG2_E;
    return select(power_of_2(x), (floats)(INFINITY), x > 127.5f);
}
