/* float16 and bfloat16 on the host. */
#include "half.h"

#include <math.h>

/* Explicit bits of the fraction, and the exponents of the least normal and the largest number. */
typedef struct format {
    int fraction, least, largest;
} format;

static format format_of(mha_type type)
{
    return type == MHA_FLOAT16 ? (format){ 10, -14, 15 } : (format){ 7, -126, 127 };
}

float half_round(float x, mha_type type)
{
    if (type == MHA_FLOAT32 || type == MHA_TYPE_DEFAULT || x == 0 || !isfinite(x))
        return x;
    const format f = format_of(type);
    const int exponent = ilogb(x) > f.least ? ilogb(x) : f.least;
    const double unit = ldexp(1, exponent - f.fraction);
    const double rounded = nearbyint(x / unit) * unit;
    if (fabs(rounded) >= ldexp(1, f.largest + 1))
        return x < 0 ? -INFINITY : INFINITY;
    return (float)copysign(rounded, x);
}

uint16_t half_bits(float x, mha_type type)
{
    const format f = format_of(type);
    const int bias = f.largest;
    const unsigned sign = signbit(x) ? 0x8000 : 0;
    const unsigned one = 1u << f.fraction; /* of the exponent */
    const unsigned top = (unsigned)(f.largest + bias + 1) * one;
    if (isnan(x))
        return (uint16_t)(sign | top | one / 2);
    if (isinf(x))
        return (uint16_t)(sign | top);
    const double size = fabs(x);
    const double unit = ldexp(1, f.least - f.fraction);
    if (size < ldexp(1, f.least))
        return (uint16_t)(sign | (unsigned)(size / unit));
    const int exponent = ilogb(size);
    const unsigned fraction = (unsigned)ldexp(size, f.fraction - exponent) - one;
    return (uint16_t)(sign | (unsigned)(exponent + bias) * one | fraction);
}

float half_value(uint16_t bits, mha_type type)
{
    const format f = format_of(type);
    const unsigned one = 1u << f.fraction;
    const int sign = bits & 0x8000 ? -1 : 1;
    const unsigned fraction = bits % one;
    const int exponent = (int)((bits & 0x7fff) / one) - f.largest;
    if (exponent > f.largest)
        return fraction ? NAN : sign * INFINITY;
    if (exponent < f.least)
        return (float)(sign * ldexp(fraction, f.least - f.fraction));
    return (float)(sign * ldexp(fraction + one, exponent - f.fraction));
}

double half_epsilon(mha_type type)
{
    return type == MHA_FLOAT32 || type == MHA_TYPE_DEFAULT
               ? 0
               : ldexp(1, -format_of(type).fraction - 1);
}
