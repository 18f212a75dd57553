/* Floats as the elements of any type. */
#include "stored.h"

#include "half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_half(mha_type type)
{
    return type == MHA_FLOAT16 || type == MHA_BFLOAT16;
}

size_t stored_bytes(mha_type type)
{
    return is_half(type) ? sizeof(uint16_t) : sizeof(float);
}

void stored_round(mha_type type, float *data, size_t count)
{
    for (size_t i = 0; is_half(type) && i < count; i++)
        data[i] = half_round(data[i], type);
}

void *stored_pack(mha_type type, const float *data, size_t count)
{
    void *packed = calloc(count ? count : 1, stored_bytes(type));
    if (!packed) {
        fprintf(stderr, "stored: no memory for %zu elements\n", count);
        abort();
    }
    uint16_t *halves = packed;
    if (!is_half(type))
        return count ? memcpy(packed, data, count * sizeof *data) : packed;
    for (size_t i = 0; i < count; i++)
        halves[i] = half_bits(half_round(data[i], type), type);
    return packed;
}

void stored_unpack(mha_type type, float *to, const void *from, size_t count)
{
    const uint16_t *halves = from;
    if (!is_half(type) && count)
        memcpy(to, from, count * sizeof *to);
    for (size_t i = 0; is_half(type) && i < count; i++)
        to[i] = half_value(halves[i], type);
}

double stored_limit(mha_type type, double x)
{
    const double smallest = type == MHA_FLOAT16 ? 0x1p-24 : 0x1p-133;
    if (!is_half(type) || !isfinite(x))
        return 0;
    return 1.01 * fmax(half_epsilon(type) * fabs(x), smallest / 2);
}
