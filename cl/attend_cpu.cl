/* Streaming attention for CPUs: one pass over the keys with a running maximum and sum, the scores
 * never stored ("Online normalizer calculation for softmax", 2018; FlashAttention, 2022).
 *
 * A work-group is one work-item, which makes TILES tiles of 8 * VECTORS queries of one head. Its SIMD
 * lanes are queries: keys and values are read where they are and broadcast, so maximum, sum and
 * exponential run element by element, and 4 keys (or 4 dims) x 8 * VECTORS queries of sums fit the
 * registers of AVX2. 8 lanes of one row each, or keys in the lanes, were far slower.
 *
 * Build options: VECTORS; TILES; BLOCK keys between two looks at the maximum, a multiple of 4; those
 * of attend.h and rules.h.
 *
 * Work-group (t, g): queries from t * TILES * 8 * VECTORS on (counted from the last ones back where
 * causal, since those take longest), batch and head g; a group goes on with g + number of groups. */
#include "attend.h"
#include "power.h"
#include "transpose.h"

#define QUERIES (8 * VECTORS)

/* Keys and values as rows of float32: in place if they are that, else converted a block at a time. */
#if KEY_TYPE == 1
#define ROWS __global const float
#else
#define ROWS __local const float
#endif

/* p[k][query] = key k . query, for `count` keys; q is [HEAD_DIM][QUERIES]. The last register tile may
 * repeat the last key: p has room for it and nobody reads it. */
static void score_block(__local float8 *p, __local const float8 *q, ROWS *keys, ulong stride,
                        int count)
{
    for (int k = 0; k < count; k += 4) {
        float8 sum[4][VECTORS];
        ROWS *row[4];
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            row[i] = keys + min(k + i, count - 1) * stride;
            #pragma unroll
            for (int v = 0; v < VECTORS; v++)
                sum[i][v] = (float8)(0.0f);
        }
        #pragma unroll 2
        for (int d = 0; d < HEAD_DIM; d++) {
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                const float8 x = (float8)(row[i][d]);
                #pragma unroll
                for (int v = 0; v < VECTORS; v++)
                    sum[i][v] += x * q[d * VECTORS + v];
            }
        }
        #pragma unroll
        for (int i = 0; i < 4; i++)
            #pragma unroll
            for (int v = 0; v < VECTORS; v++)
                p[(k + i) * VECTORS + v] = sum[i][v];
    }
}

/* o[d][query] += sum over k of p[k][query] value[k][d], for `dims` (1 or 4) dims from d on. */
#define WEIGH_DIMS(dims, guarded)                                                                  \
    {                                                                                              \
        float8 sum[dims][VECTORS];                                                                 \
        _Pragma("unroll") for (int i = 0; i < dims; i++)                                           \
            _Pragma("unroll") for (int v = 0; v < VECTORS; v++)                                    \
                sum[i][v] = o[(d + i) * VECTORS + v];                                              \
        ROWS *row = values + d;                                                                    \
        for (int k = 0; k < count; k++)                                                            \
        {                                                                                          \
            _Pragma("unroll") for (int i = 0; i < dims; i++)                                       \
            {                                                                                      \
                const float8 x = (float8)(row[i]);                                                 \
                _Pragma("unroll") for (int v = 0; v < VECTORS; v++)                                \
                {                                                                                  \
                    const float8 weight = p[k * VECTORS + v];                                      \
                    const float8 more = sum[i][v] + x * weight;                                    \
                    sum[i][v] = guarded ? select(more, sum[i][v], weight == 0.0f) : more;          \
                }                                                                                  \
            }                                                                                      \
            row += stride;                                                                         \
        }                                                                                          \
        _Pragma("unroll") for (int i = 0; i < dims; i++)                                           \
            _Pragma("unroll") for (int v = 0; v < VECTORS; v++)                                    \
                o[(d + i) * VECTORS + v] = sum[i][v];                                              \
    }

static void weigh_block(__local float8 *o, __local const float8 *p, ROWS *values, ulong stride,
                        int count)
{
    int d = 0;
    for (; d + 4 <= VALUE_DIM; d += 4)
        WEIGH_DIMS(4, 0)
    for (; d < VALUE_DIM; d++)
        WEIGH_DIMS(1, 0)
}

/* The same, but a key of weight 0 is passed over, whatever stands there: 0 * NaN is NaN. */
static void weigh_block_guarded(__local float8 *o, __local const float8 *p, ROWS *values,
                                ulong stride, int count)
{
    for (int d = 0; d < VALUE_DIM; d++)
        WEIGH_DIMS(1, 1)
}

/* Whether no infinity or NaN is among them, by their bits: a compiler may hold 0 * x for 0. */
static int all_finite(__local const float8 *x, int count)
{
    const int exponent = 0x7f800000;
    int8 bad = (int8)(0);
    for (int n = 0; n < count; n++)
        bad |= (as_int8(x[n]) & exponent) == exponent;
    return !any(bad);
}

#if KEY_TYPE != 1
static void convert_rows(__local float *to, __global const STORED(KEY_TYPE) *from, ulong stride,
                         int count, int dims)
{
    for (int k = 0; k < count; k++) {
        int d = 0;
        for (; d + 8 <= dims; d += 8)
            vstore8(LOAD8(KEY_TYPE, from, k * stride + d), 0, to + k * dims + d);
        for (; d < dims; d++)
            to[k * dims + d] = LOAD(KEY_TYPE, from, k * stride + d);
    }
}
#endif

/* What a tile keeps from block to block. All [..][QUERIES], in local memory so that the compiler
 * need not hold it in registers. */
typedef struct tile_state {
    __local float8 *query;  /* [HEAD_DIM], scaled */
    __local float8 *output; /* [VALUE_DIM], not yet divided by the sum */
    __local float8 *top;    /* the running maximum, in natural units */
    __local float8 *sum;
    __local int8 *first; /* the range of keys that each query may see */
    __local int8 *end;
    __local int8 *diagonal;
    int least, most;      /* keys outside [least, most) are seen by no query of the tile */
    int all_from, all_to; /* keys inside [all_from, all_to) are in the range of all */
} tile_state;

/* Exclusion: p = -inf where a key is outside its query's range. */
static void exclude(__local float8 *p, const tile_state *tile, int k0, int count)
{
    for (int v = 0; v < VECTORS; v++) {
        const int8 first = tile->first[v];
        const int8 end = tile->end[v];
        for (int k = 0; k < count; k++) {
            const int8 j = (int8)(k0 + k);
            const float8 x = p[k * VECTORS + v];
            p[k * VECTORS + v] = select(x, (float8)(-INFINITY), j < first || j >= end);
        }
    }
}

/* p = exp(p - new maximum); the sum joins it, and output and sum are scaled down if the maximum
 * moved. A query that has seen no key yet has the maximum -inf, and 0 takes its place. */
static void exponentiate(__local float8 *p, const tile_state *tile, int count)
{
    for (int v = 0; v < VECTORS; v++) {
        const float8 before = tile->top[v];
        float8 top = before;
        for (int k = 0; k < count; k++) {
            const float8 x = p[k * VECTORS + v];
            top = select(top, x, x > top);
        }
        const float8 base = select(top, (float8)(0.0f), top == -INFINITY);
        float8 sum = tile->sum[v];
        if (any(top > before)) {
            /* By exp, since power_of_2(0) is a bit above 1: from block to block that would add up in
             * the queries whose maximum stays, or hardly moves. */
            const float8 keep = exp(before - base);
            sum *= keep;
            for (int d = 0; d < VALUE_DIM; d++)
                tile->output[d * VECTORS + v] *= keep;
            tile->top[v] = top;
        }
        for (int k = 0; k < count; k++) {
            const float8 e = power_of_2((p[k * VECTORS + v] - base) * LOG2_E);
            p[k * VECTORS + v] = e;
            sum += e;
        }
        tile->sum[v] = sum;
    }
}

#if USES_EACH
/* What a batch and head says of each score, from its first query's row of bias and mask on. */
typedef struct each_rules {
    rules_row first;
    ulong bias_row, mask_row;
    int last; /* query: those past it repeat it */
} each_rules;

#if USES_MASK
/* Whether any of the queries i0 and on may see any of the keys k0 .. k0 + count - 1, by the mask. */
static int any_unmasked(const each_rules *each, int i0, int k0, int count)
{
    for (int r = 0; r < QUERIES && i0 + r <= each->last; r++) {
        __global const uchar *mask = each->first.mask + (i0 + r) * each->mask_row;
        if (!each->first.mask_column) {
            if (mask[0])
                return 1;
            continue;
        }
        int k = k0;
        for (; k + 8 <= k0 + count; k += 8)
            if (as_ulong(vload8(0, mask + k)))
                return 1;
        for (; k < k0 + count; k++)
            if (mask[k])
                return 1;
    }
    return 0;
}
#endif

/* add[k][query] = bias of keys j + k and queries i and on, -inf where the mask excludes; 8 x 8 of them,
 * read along the keys and turned. `count` keys are there. */
static void load_additions(float8 add[8], const each_rules *each, int i, int j, int count)
{
    float8 rows[8];
    for (int q = 0; q < 8; q++) {
        const ulong row = min(i + q, each->last);
        float8 x = (float8)(0.0f);
        if (USES_BIAS) {
            __global const STORED(BIAS_TYPE) *bias = each->first.bias + row * each->bias_row;
            if (each->first.bias_column && count == 8) {
                x = LOAD8(BIAS_TYPE, bias, j);
            } else {
                float part[8];
                for (int k = 0; k < 8; k++)
                    part[k] = LOAD(BIAS_TYPE, bias,
                                   (ulong)(j + min(k, count - 1)) * each->first.bias_column);
                x = vload8(0, part);
            }
        }
        if (USES_MASK) {
            __global const uchar *mask = each->first.mask + row * each->mask_row;
            uchar8 keep = (uchar8)(mask[0]);
            if (each->first.mask_column && count == 8) {
                keep = vload8(0, mask + j);
            } else if (each->first.mask_column) {
                uchar part[8];
                for (int k = 0; k < 8; k++)
                    part[k] = mask[j + min(k, count - 1)];
                keep = vload8(0, part);
            }
            x = select(x, (float8)(-INFINITY), convert_int8(keep) == 0);
        }
        rows[q] = x;
    }
    transpose(add, rows);
}

/* Scaled scores to what the softmax takes, by the rules that look at each: as rules_cap and
 * rules_bias, of 8 queries at once. */
static void rule(__local float8 *p, const tile_state *tile, const each_rules *each, int i0, int k0,
                 int count)
{
    for (int v = 0; v < VECTORS; v++)
        for (int k = 0; k < count; k += 8) {
            float8 add[8];
            if (USES_BIAS || USES_MASK)
                load_additions(add, each, i0 + 8 * v, k0 + k, min(8, count - k));
            for (int n = 0; n < min(8, count - k); n++) {
                float8 x = p[(k + n) * VECTORS + v];
                if (USES_SOFTCAP)
                    x = each->first.softcap * tanh(x / each->first.softcap);
                if (USES_BIAS)
                    x += add[n];
                if (USES_ALIBI)
                    x -= each->first.slope
                         * convert_float8(abs(tile->diagonal[v] - (int8)(k0 + k + n)));
                /* -inf excludes whatever the score is, NaN as well. */
                if (USES_BIAS || USES_MASK)
                    x = select(x, (float8)(-INFINITY), add[n] == -INFINITY);
                p[(k + n) * VECTORS + v] = x;
            }
        }
}
#endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attend_cpu_rows(ATTEND_PARAMETERS)
{
    __local float8 query_pool[TILES * HEAD_DIM * VECTORS];
    __local float8 output_pool[TILES * VALUE_DIM * VECTORS];
    __local float8 top_pool[TILES * VECTORS];
    __local float8 sum_pool[TILES * VECTORS];
    __local int8 first_pool[TILES * VECTORS];
    __local int8 end_pool[TILES * VECTORS];
    __local int8 diagonal_pool[TILES * VECTORS];
    __local float8 p[BLOCK * VECTORS];
#if KEY_TYPE != 1
    __local float key_block[BLOCK * HEAD_DIM];
    __local float value_block[BLOCK * VALUE_DIM];
#endif
    const int t = USES_CAUSAL ? (int)(get_num_groups(0) - 1 - get_group_id(0))
                              : (int)get_group_id(0);
    const int i0 = t * TILES * QUERIES;

    for (int g = (int)get_group_id(1); g < batch * heads; g += (int)get_num_groups(1)) {
        const int b = g / heads;
        const int h = g % heads;
        rules_span span;
        RULES_SPAN_OF(&span, b);
        if (i0 >= span.queries)
            continue;
        __global const STORED(QUERY_TYPE) *q = query + query_offset + b * query_batch
                                               + h * query_head + span.query_row * query_row;
        __global const STORED(KEY_TYPE) *keys = key + key_offset + b * key_batch
                                                + h / group * key_head + span.key_row * key_row;
        __global const STORED(KEY_TYPE) *values = value + value_offset + b * value_batch
                                                  + h / group * value_head
                                                  + span.key_row * value_row;

        /* Queries past the last repeat it; they are not written. */
        tile_state tiles[TILES];
        int least = span.length;
        int most = 0;
        for (int n = 0; n < TILES; n++) {
            tile_state *tile = &tiles[n];
            tile->query = query_pool + n * HEAD_DIM * VECTORS;
            tile->output = output_pool + n * VALUE_DIM * VECTORS;
            tile->top = top_pool + n * VECTORS;
            tile->sum = sum_pool + n * VECTORS;
            tile->first = first_pool + n * VECTORS;
            tile->end = end_pool + n * VECTORS;
            tile->diagonal = diagonal_pool + n * VECTORS;
            tile->least = span.length;
            tile->most = 0;
            tile->all_from = 0;
            tile->all_to = span.length;
            for (int r = 0; r < QUERIES; r++) {
                const int i = min(i0 + n * QUERIES + r, span.queries - 1);
                rules_row row;
                RULES_OF(&row, b, h, i);
                ((__local int *)tile->first)[r] = row.first;
                ((__local int *)tile->end)[r] = row.end;
                ((__local int *)tile->diagonal)[r] = row.diagonal;
                tile->least = min(tile->least, row.first);
                tile->most = max(tile->most, row.end);
                tile->all_from = max(tile->all_from, row.first);
                tile->all_to = min(tile->all_to, row.end);
                for (int d = 0; d < HEAD_DIM; d++)
                    ((__local float *)tile->query)[d * QUERIES + r]
                        = scale * LOAD(QUERY_TYPE, q, i * query_row + d);
            }
            if (i0 + n * QUERIES < span.queries) {
                least = min(least, tile->least);
                most = max(most, tile->most);
            }
        }

#if USES_EACH
        each_rules each;
        RULES_OF(&each.first, b, h, 0);
        each.bias_row = bias_row;
        each.mask_row = mask_row;
        each.last = span.queries - 1;
#endif
        /* What stands at an excluded key, of weight 0, must not reach the output, but 0 * NaN is NaN.
         * That is rare: all is done once more, around the keys of weight 0, where it shows in the
         * end. To look at all values first would read them twice. */
        for (int guarded = 0; guarded < 2; guarded++) {
            for (int d = 0; d < TILES * VALUE_DIM * VECTORS; d++)
                output_pool[d] = (float8)(0.0f);
            for (int v = 0; v < TILES * VECTORS; v++) {
                top_pool[v] = (float8)(-INFINITY);
                sum_pool[v] = (float8)(0.0f);
            }
            int step = BLOCK;
            for (int k0 = least; k0 < most; k0 += step) {
                /* In a ring, a block ends where its rows do. */
                const int row0 = USES_RING ? k0 % key_len : k0;
                if (USES_RING)
                    step = min(BLOCK, key_len - row0);
                const int rows = min(step, most - k0);
#if KEY_TYPE != 1
                convert_rows(key_block, keys + row0 * key_row, key_row, rows, HEAD_DIM);
                convert_rows(value_block, values + row0 * value_row, value_row, rows, VALUE_DIM);
                ROWS *key_rows = key_block;
                ROWS *value_rows = value_block;
                const ulong key_stride = HEAD_DIM;
                const ulong value_stride = VALUE_DIM;
#else
                ROWS *key_rows = keys + row0 * key_row;
                ROWS *value_rows = values + row0 * value_row;
                const ulong key_stride = key_row;
                const ulong value_stride = value_row;
#endif
                for (int n = 0; n < TILES; n++) {
                    const tile_state *tile = &tiles[n];
                    const int count = min(step, tile->most - k0);
                    if (i0 + n * QUERIES >= span.queries || count <= 0 || k0 + step <= tile->least)
                        continue;
#if USES_MASK
                    if (!any_unmasked(&each, i0 + n * QUERIES, k0, count))
                        continue;
#endif
                    score_block(p, tile->query, key_rows, key_stride, count);
                    const int partial = k0 < tile->all_from || k0 + count > tile->all_to;
#if USES_EACH
                    rule(p, tile, &each, i0 + n * QUERIES, k0, count);
#endif
                    if (partial)
                        exclude(p, tile, k0, count);
                    exponentiate(p, tile, count);
#if USES_DROPOUT
                    for (int r = 0; r < QUERIES; r++)
                        attend_drop((__local float *)p + r, QUERIES, g, i0 + n * QUERIES + r, k0,
                                    count, RULES_ARGUMENTS);
#endif
                    if (guarded)
                        weigh_block_guarded(tile->output, p, value_rows, value_stride, count);
                    else
                        weigh_block(tile->output, p, value_rows, value_stride, count);
                }
            }
            if (all_finite(output_pool, TILES * VALUE_DIM * VECTORS))
                break;
        }

        for (int n = 0; n < TILES; n++) {
            const tile_state *tile = &tiles[n];
            for (int r = 0; r < min(QUERIES, span.queries - i0 - n * QUERIES); r++) {
                const int i = span.query_row + i0 + n * QUERIES + r; /* the row in memory */
                float log_sum;
                const float scale_by
                    = attend_divide(&log_sum, ((__local float *)tile->top)[r],
                                    ((__local float *)tile->sum)[r],
                                    sinks ? sinks[sinks_offset + h] : -INFINITY);
                __global STORED(OUTPUT_TYPE) *o = output + output_offset + b * output_batch
                                                  + h * output_head + i * output_row;
                for (int d = 0; d < VALUE_DIM; d++)
                    STORE(OUTPUT_TYPE, ((__local float *)tile->output)[d * QUERIES + r] * scale_by,
                          o, d);
                if (lse)
                    lse[lse_offset + b * lse_batch + h * lse_head + i * lse_row] = log_sum;
            }
        }
    }
}
