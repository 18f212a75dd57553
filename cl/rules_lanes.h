/* The rules that look at each score, for kernels whose lanes are queries: as rules_cap and
 * rules_bias of rules.h, of LANES queries and a block of keys at once. Bias and mask are read along
 * the keys, as they lie in memory, and turned. */
#include "rules.h"
#include "vectors.h"

/* What a batch and head says of each score, from its first query's row of bias and mask on. */
typedef struct each_rules {
    rules_row first;
    ulong bias_row, mask_row;
    int last; /* query: those past it repeat it */
} each_rules;

#if USES_MASK
/* Whether any of `queries` queries, i and on, may see any of the keys j .. j + count - 1, by the
 * mask. */
static int any_unmasked(const each_rules *each, int i, int queries, int j, int count)
{
    for (int q = i; q < i + queries && q <= each->last; q++) {
        __global const uchar *mask = each->first.mask + q * each->mask_row;
        if (!each->first.mask_column) {
            if (mask[0])
                return 1;
            continue;
        }
        int k = j;
        for (; k + 8 <= j + count; k += 8)
            if (as_ulong(vload8(0, mask + k)))
                return 1;
        for (; k < j + count; k++)
            if (mask[k])
                return 1;
    }
    return 0;
}

/* keep[key][query] of 16 keys, j and on, and of queries i and on. `count` of the keys are there,
 * and the last one takes the place of those that are not. */
static void load_mask(uchars keep[16], const each_rules *each, int i, int j, int count)
{
    uchar16 x[LANES], y[LANES];
    #pragma unroll
    for (int q = 0; q < LANES; q++) {
        __global const uchar *mask = each->first.mask + min(i + q, each->last) * each->mask_row;
        if (!each->first.mask_column) {
            x[q] = (uchar16)(mask[0]);
        } else if (count >= 16) {
            x[q] = vload16(0, mask + j);
        } else {
            uchar part[16];
            for (int k = 0; k < 16; k++)
                part[k] = mask[j + min(k, count - 1)];
            x[q] = vload16(0, part);
        }
    }
    SHUFFLE_ROWS(uchar16, LANES, y, x)
    SHUFFLE_ROWS(uchar16, LANES, x, y)
    SHUFFLE_ROWS(uchar16, LANES, y, x)
#if LANES == 16
    SHUFFLE_ROWS(uchar16, LANES, keep, y)
#else
    #pragma unroll
    for (int k = 0; k < 8; k++) {
        keep[2 * k] = y[k].lo;
        keep[2 * k + 1] = y[k].hi;
    }
#endif
}

/* p [key][query], `pitch` vectors from key to key: -inf where the mask excludes. Keys past `count`,
 * up to a multiple of 16, hold anything. */
static void rule_mask(__local floats *p, int pitch, const each_rules *each, int i, int j, int count)
{
    for (int k = 0; k < count; k += 16) {
        uchars keep[16];
        load_mask(keep, each, i, j + k, count - k);
        #pragma unroll
        for (int n = 0; n < 16; n++) {
            __local floats *x = p + (k + n) * pitch;
            *x = select(*x, (floats)(-INFINITY), convert_ints(keep[n] == (uchars)(0)));
        }
    }
}
#endif

#if USES_BIAS
/* add[key][query] of LANES keys, j and on, and of queries i and on, as load_mask. */
static void load_bias(floats add[LANES], const each_rules *each, int i, int j, int count)
{
    floats rows[LANES];
    #pragma unroll
    for (int q = 0; q < LANES; q++) {
        __global const STORED(BIAS_TYPE) *bias = each->first.bias
                                                 + min(i + q, each->last) * each->bias_row;
        if (each->first.bias_column && count >= LANES) {
            rows[q] = LOAD_LANES(BIAS_TYPE, bias, j);
        } else {
            float part[LANES];
            for (int k = 0; k < LANES; k++)
                part[k] = LOAD(BIAS_TYPE, bias,
                               (ulong)(j + min(k, count - 1)) * each->first.bias_column);
            rows[q] = VLOAD_LANES(0, part);
        }
    }
    transpose_lanes(add, rows);
}
#endif

/* p as for rule_mask: capped, biased; diagonal is that of queries i and on. */
static void rule_scores(__local floats *p, int pitch, const each_rules *each, ints diagonal, int i,
                        int j, int count)
{
    for (int k = 0; k < count; k += LANES) {
#if USES_BIAS
        floats add[LANES];
        load_bias(add, each, i, j + k, count - k);
#endif
        #pragma unroll
        for (int n = 0; n < LANES; n++) {
            floats x = p[(k + n) * pitch];
#if USES_SOFTCAP
            x = each->first.softcap * tanh(x / each->first.softcap);
#endif
#if USES_BIAS
            x += add[n];
#endif
#if USES_ALIBI
            x -= each->first.slope * convert_floats(abs(diagonal - (ints)(j + k + n)));
#endif
#if USES_BIAS
            /* -inf excludes whatever the score is, NaN as well. */
            x = select(x, (floats)(-INFINITY), add[n] == -INFINITY);
#endif
            p[(k + n) * pitch] = x;
        }
    }
}
