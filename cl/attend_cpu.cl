/* Streaming attention for CPUs: one pass over the keys with a running maximum and sum, the scores
 * never stored ("Online normalizer calculation for softmax", 2018; FlashAttention, 2022).
 *
 * A work-group is one work-item, which makes TILES tiles of LANES * VECTORS queries of one head.
 * Its SIMD lanes are queries: keys and values are read where they are and broadcast, so maximum,
 * sum and exponential run element by element, and TALL keys (or dims) x LANES * VECTORS queries of
 * sums stay in registers. 8 lanes of one row each, or keys in the lanes, were far slower.
 *
 * Build options: LANES, see vectors.h; VECTORS; TILES; TALL; BLOCK keys between two looks at the
 * maximum, a multiple of TALL and of 16; those of attend.h and rules.h.
 *
 * Work-group (n, g): the part_of(n) of TILES * QUERIES queries, batch and head g; a group goes on
 * with g + number of groups. */
#include "attend.h"
#include "vectors.h"
#include "power.h"
#include "rules_lanes.h"

#define QUERIES (LANES * VECTORS)

/* Keys and values as rows of float32: in place if they are that, else converted a block at a time.
 */
#if KEY_TYPE == 1
#define ROWS __global const float
#else
#define ROWS __local const float
#endif

/* p[k][query] = key k . query, for `count` keys; q is [HEAD_DIM][QUERIES]. The last register tile
 * may repeat the last key: p has room for it and nobody reads it. */
static void score_block(__local floats *p, __local const floats *q, ROWS *keys, ulong stride,
                        int count)
{
    for (int k = 0; k < count; k += TALL) {
        floats sum[TALL][VECTORS];
        ROWS *row[TALL];
        #pragma unroll
        for (int i = 0; i < TALL; i++) {
            row[i] = keys + min(k + i, count - 1) * stride;
            #pragma unroll
            for (int v = 0; v < VECTORS; v++)
                sum[i][v] = (floats)(0.0f);
        }
        #pragma unroll 2
        for (int d = 0; d < HEAD_DIM; d++) {
            #pragma unroll
            for (int i = 0; i < TALL; i++) {
                const floats x = (floats)(row[i][d]);
                #pragma unroll
                for (int v = 0; v < VECTORS; v++)
                    sum[i][v] += x * q[d * VECTORS + v];
            }
        }
        #pragma unroll
        for (int i = 0; i < TALL; i++)
            #pragma unroll
            for (int v = 0; v < VECTORS; v++)
                p[(k + i) * VECTORS + v] = sum[i][v];
    }
}

/* o[d][query] += sum over k of p[k][query] value[k][d], for `dims` (1 or TALL) dims from d on. */
#define WEIGH_DIMS(dims, guarded)                                                                  \
    {                                                                                              \
        floats sum[dims][VECTORS];                                                                 \
        _Pragma("unroll") for (int i = 0; i < dims; i++)                                           \
            _Pragma("unroll") for (int v = 0; v < VECTORS; v++)                                    \
                sum[i][v] = o[(d + i) * VECTORS + v];                                              \
        ROWS *row = values + d;                                                                    \
        for (int k = 0; k < count; k++)                                                            \
        {                                                                                          \
            _Pragma("unroll") for (int i = 0; i < dims; i++)                                       \
            {                                                                                      \
                const floats x = (floats)(row[i]);                                                 \
                _Pragma("unroll") for (int v = 0; v < VECTORS; v++)                                \
                {                                                                                  \
                    const floats weight = p[k * VECTORS + v];                                      \
                    const floats more = sum[i][v] + x * weight;                                    \
                    sum[i][v] = guarded ? select(more, sum[i][v], weight == 0.0f) : more;          \
                }                                                                                  \
            }                                                                                      \
            row += stride;                                                                         \
        }                                                                                          \
        _Pragma("unroll") for (int i = 0; i < dims; i++)                                           \
            _Pragma("unroll") for (int v = 0; v < VECTORS; v++)                                    \
                o[(d + i) * VECTORS + v] = sum[i][v];                                              \
    }

static void weigh_block(__local floats *o, __local const floats *p, ROWS *values, ulong stride,
                        int count)
{
    int d = 0;
    for (; d + TALL <= VALUE_DIM; d += TALL)
        WEIGH_DIMS(TALL, 0)
    for (; d < VALUE_DIM; d++)
        WEIGH_DIMS(1, 0)
}

/* The same, but a key of weight 0 is passed over, whatever stands there: 0 * NaN is NaN. */
static void weigh_block_guarded(__local floats *o, __local const floats *p, ROWS *values,
                                ulong stride, int count)
{
    for (int d = 0; d < VALUE_DIM; d++)
        WEIGH_DIMS(1, 1)
}

/* Whether no infinity or NaN is among them, by their bits: a compiler may hold 0 * x for 0. */
static int all_finite(__local const floats *x, int count)
{
    const int exponent = 0x7f800000;
    ints bad = (ints)(0);
    for (int n = 0; n < count; n++)
        bad |= (as_ints(x[n]) & exponent) == exponent;
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
    __local floats *query;  /* [HEAD_DIM], scaled */
    __local floats *output; /* [VALUE_DIM], not yet divided by the sum */
    __local floats *top;    /* the running maximum, in natural units */
    __local floats *sum;
    __local ints *first; /* the range of keys that each query may see */
    __local ints *end;
    __local ints *diagonal;
    int least, most;      /* keys outside [least, most) are seen by no query of the tile */
    int all_from, all_to; /* keys inside [all_from, all_to) are in the range of all */
} tile_state;

/* Exclusion: p = -inf where a key is outside its query's range. */
static void exclude(__local floats *p, const tile_state *tile, int k0, int count)
{
    for (int v = 0; v < VECTORS; v++) {
        const ints first = tile->first[v];
        const ints end = tile->end[v];
        for (int k = 0; k < count; k++) {
            const ints j = (ints)(k0 + k);
            const floats x = p[k * VECTORS + v];
            p[k * VECTORS + v] = select(x, (floats)(-INFINITY), j < first || j >= end);
        }
    }
}

/* p = exp(p - new maximum); the sum joins it, and output and sum are scaled down if the maximum
 * moved. A query that has seen no key yet has the maximum -inf, and 0 takes its place. The vectors of
 * a key are done together, so that they share what the exponential takes from memory. */
static void exponentiate(__local floats *p, const tile_state *tile, int count)
{
    floats top[VECTORS], base[VECTORS], sum[VECTORS];
    #pragma unroll
    for (int v = 0; v < VECTORS; v++)
        top[v] = tile->top[v];
    for (int k = 0; k < count; k++) {
        #pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            const floats x = p[k * VECTORS + v];
            top[v] = select(top[v], x, x > top[v]);
        }
    }
    #pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        base[v] = select(top[v], (floats)(0.0f), top[v] == -INFINITY);
        sum[v] = tile->sum[v];
        const floats before = tile->top[v];
        if (any(top[v] > before)) {
            /* By the driver's exp, since power_of_2(0) is a bit above 1: from block to block that
             * would add up in the queries whose maximum stays, or hardly moves. */
            const floats keep = exp(before - base[v]);
            sum[v] *= keep;
            for (int d = 0; d < VALUE_DIM; d++)
                tile->output[d * VECTORS + v] *= keep;
            tile->top[v] = top[v];
        }
    }
    for (int k = 0; k < count; k++) {
        #pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            const floats e = power_of_2((p[k * VECTORS + v] - base[v]) * LOG2_E);
            p[k * VECTORS + v] = e;
            sum[v] += e;
        }
    }
    #pragma unroll
    for (int v = 0; v < VECTORS; v++)
        tile->sum[v] = sum[v];
}

#if USES_EACH
/* All rules that look at each score of a tile. */
static void rule(__local floats *p, const tile_state *tile, const each_rules *each, int i0, int k0,
                 int count)
{
    for (int v = 0; v < VECTORS; v++) {
        if (USES_SOFTCAP || USES_BIAS || USES_ALIBI)
            rule_scores(p + v, VECTORS, each, tile->diagonal[v], i0 + v * LANES, k0, count);
#if USES_MASK
        rule_mask(p + v, VECTORS, each, i0 + v * LANES, k0, count);
#endif
    }
}
#endif

/* A tile's queries, scaled and turned; those past the last repeat it. */
static void load_queries(__local floats *to, __global const STORED(QUERY_TYPE) *from, ulong stride,
                         int i0, int last, float scale)
{
    for (int v = 0; v < VECTORS; v++) {
        int d = 0;
        for (; d + LANES <= HEAD_DIM; d += LANES) {
            floats rows[LANES], turned[LANES];
            #pragma unroll
            for (int q = 0; q < LANES; q++)
                rows[q] = scale * LOAD_LANES(QUERY_TYPE, from,
                                             min(i0 + v * LANES + q, last) * stride + d);
            transpose_lanes(turned, rows);
            #pragma unroll
            for (int n = 0; n < LANES; n++)
                to[(d + n) * VECTORS + v] = turned[n];
        }
        for (; d < HEAD_DIM; d++)
            for (int q = 0; q < LANES; q++)
                ((__local float *)to)[d * QUERIES + v * LANES + q]
                    = scale * LOAD(QUERY_TYPE, from, min(i0 + v * LANES + q, last) * stride + d);
    }
}

/* LANES rows of the output, of which `count` are there, each multiplied by its scale. */
static void store_rows(__global STORED(OUTPUT_TYPE) *to, ulong stride, __local const floats *from,
                       const float scales[LANES], int count)
{
    int d = 0;
    for (; d + LANES <= VALUE_DIM; d += LANES) {
        floats dims[LANES], rows[LANES];
        #pragma unroll
        for (int n = 0; n < LANES; n++)
            dims[n] = from[(d + n) * VECTORS];
        transpose_lanes(rows, dims);
        #pragma unroll
        for (int q = 0; q < LANES; q++)
            if (q < count)
                STORE_LANES(OUTPUT_TYPE, rows[q] * scales[q], to, q * stride + d);
    }
    for (; d < VALUE_DIM; d++)
        for (int q = 0; q < count; q++)
            STORE(OUTPUT_TYPE, ((__local const float *)from)[d * QUERIES + q] * scales[q], to,
                  q * stride + d);
}

/* The part of the queries that comes n-th. Where causal, the last queries take longest: they take
 * turns with the first, since PoCL gives a thread half of all work-items at once, those that come
 * first. */
static int part_of(int n, int parts)
{
    if (!USES_CAUSAL)
        return n;
    return n % 2 ? n / 2 : parts - 1 - n / 2;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attend_cpu_rows(ATTEND_GIVEN)
{
    ATTEND_TAKE
    __local floats query_pool[TILES * HEAD_DIM * VECTORS];
    __local floats output_pool[TILES * VALUE_DIM * VECTORS];
    __local floats top_pool[TILES * VECTORS];
    __local floats sum_pool[TILES * VECTORS];
    __local ints first_pool[TILES * VECTORS];
    __local ints end_pool[TILES * VECTORS];
    __local ints diagonal_pool[TILES * VECTORS];
    __local floats p[BLOCK * VECTORS];
#if KEY_TYPE != 1
    __local float key_block[BLOCK * HEAD_DIM];
    __local float value_block[BLOCK * VALUE_DIM];
#endif
    const int t = part_of((int)get_group_id(0), (int)get_num_groups(0));
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
            rules_row row;
            int differ = per_query != 0; /* from row to row */
            if (DIAGONAL)
                differ = 1;
            for (int r = 0; r < QUERIES; r++) {
                if (!r || differ)
                    RULES_OF(&row, b, h, min(i0 + n * QUERIES + r, span.queries - 1));
                ((__local int *)tile->first)[r] = row.first;
                ((__local int *)tile->end)[r] = row.end;
                ((__local int *)tile->diagonal)[r] = row.diagonal;
                tile->least = min(tile->least, row.first);
                tile->most = max(tile->most, row.end);
                tile->all_from = max(tile->all_from, row.first);
                tile->all_to = min(tile->all_to, row.end);
            }
            load_queries(tile->query, q, query_row, i0 + n * QUERIES, span.queries - 1, scale);
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
        /* What stands at an excluded key, of weight 0, must not reach the output, but 0 * NaN is
         * NaN. That is rare: all is done once more, around the keys of weight 0, where it shows in
         * the end. To look at all values first would read them twice. */
        for (int guarded = 0; guarded < 2; guarded++) {
            for (int d = 0; d < TILES * VALUE_DIM * VECTORS; d++)
                output_pool[d] = (floats)(0.0f);
            for (int v = 0; v < TILES * VECTORS; v++) {
                top_pool[v] = (floats)(-INFINITY);
                sum_pool[v] = (floats)(0.0f);
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
                    if (!any_unmasked(&each, i0 + n * QUERIES, QUERIES, k0, count))
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

        for (int v = 0; v < TILES * VECTORS; v++) {
            const int i = span.query_row + i0 + v * LANES; /* the row in memory */
            const int count = min(LANES, span.queries - i0 - v * LANES);
            float scales[LANES];
            for (int q = 0; q < count; q++) {
                float log_sum;
                scales[q] = attend_divide(lse ? &log_sum : 0, ((__local float *)(top_pool + v))[q],
                                          ((__local float *)(sum_pool + v))[q],
                                          sinks ? sinks[sinks_offset + h] : -INFINITY);
                if (lse)
                    lse[lse_offset + b * lse_batch + h * lse_head + (i + q) * lse_row] = log_sum;
            }
            const tile_state *tile = &tiles[v / VECTORS];
            store_rows(output + output_offset + b * output_batch + h * output_head
                           + i * output_row,
                       output_row, tile->output + v % VECTORS, scales, count);
        }
    }
}
