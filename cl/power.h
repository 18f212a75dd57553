/* Exponentials of vectors. Drivers' own take twice as long, to be exact to the last bit.
 *
 * Before it is included floats and ints, as_floats and as_ints must be there, as in vectors.h. */
#define LOG2_E 1.4426950408889634f

/* 2^x for x from -126.5 to 128: a polynomial, minimax of 2^f on [-0.5, 0.5], times a power of two
 * made from its bits. NaN stays NaN. */
static floats power_in_range(floats x)
{
    const floats magic = (floats)(12582912.0f); /* 1.5 * 2^23 rounds to an integer when added */
    const floats shifted = x + magic;
    const floats f = x - (shifted - magic);
    floats p = f * 1.3276476e-3f + 9.6755410e-3f;
    p = p * f + 5.5507131e-2f;
    p = p * f + 2.4022120e-1f;
    p = p * f + 6.9314694e-1f;
    p = p * f + 1.0000001f;
    return p * as_floats((as_ints(shifted) << 23) + (ints)(0x3f800000));
}

/* 2^x for x <= 0, relative error 2.4e-7; exactly 0 below -126, so for -inf too. */
static floats power_of_2(floats x)
{
    return select(power_in_range(x), (floats)(0.0f), x < -126.0f);
}

/* e^x, relative error 2.4e-7 + 1e-7 |x|; 0 below 2^-126, infinity above 2^127.5. */
static floats exponential(floats x)
{
    x *= LOG2_E;
    const floats y = select(power_in_range(x), (floats)(INFINITY), x > 127.5f);
    return select(y, (floats)(0.0f), x < -126.0f);
}
