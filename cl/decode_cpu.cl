/* Attention of few queries to many keys, as in generation token by token: the keys are split over
 * work-items, each of which goes once over its part with a running maximum and sum (FlashAttention,
 * 2022), and the parts are merged by their log-sum-exp ("Flash-Decoding", 2023). Bound by how fast
 * keys and values come from memory, so each is read once for all query heads that share it.
 *
 * Build options: LANES 8, see vectors.h; GROUP 1; TILE of the query rows at a time, 1, 2 or 4;
 * BLOCK keys between two looks at the maximum, a multiple of 8; MERGES 0: there is one part, and it
 * is the output; those of decode.h and rules.h.
 *
 * Work-group (c, g) of decode_cpu_part is one work-item: part c of the keys of one batch and key
 * head, g counting those; a group goes on with g + number of groups. */
#include "decode.h"
#include "vectors.h"
#include "power.h"

#define QUERY_PITCH ((HEAD_DIM + 7) / 8 * 8)
#define PADDED_ROWS ((ROWS + TILE - 1) / TILE * TILE)
/* Vectors of a row's output that stay in registers while a block's values go by. */
#define SLICE (TILE == 1 ? 8 : TILE == 2 ? 4 : 2)

static float sum_of(float8 x)
{
    const float4 four = x.lo + x.hi;
    const float2 two = four.lo + four.hi;
    return two.x + two.y;
}

/* s[row][k] = key k . query row; query is [TILE][QUERY_PITCH], s [TILE][BLOCK]. */
static void score_keys(__local float *s, __local const float *query,
                       __global const STORED(KEY_TYPE) *keys, ulong stride, int count)
{
    for (int k = 0; k < count; k++) {
        __global const STORED(KEY_TYPE) *key = keys + k * stride;
        float8 sum[TILE], other[TILE]; /* two chains, since one would wait for itself */
        #pragma unroll
        for (int r = 0; r < TILE; r++) {
            sum[r] = (float8)(0.0f);
            other[r] = (float8)(0.0f);
        }
        int d = 0;
        for (; d + 16 <= HEAD_DIM; d += 16) {
            const float8 x = LOAD8(KEY_TYPE, key, d);
            const float8 y = LOAD8(KEY_TYPE, key, d + 8);
            #pragma unroll
            for (int r = 0; r < TILE; r++) {
                sum[r] += x * vload8(0, query + r * QUERY_PITCH + d);
                other[r] += y * vload8(0, query + r * QUERY_PITCH + d + 8);
            }
        }
        for (; d + 8 <= HEAD_DIM; d += 8) {
            const float8 x = LOAD8(KEY_TYPE, key, d);
            #pragma unroll
            for (int r = 0; r < TILE; r++)
                sum[r] += x * vload8(0, query + r * QUERY_PITCH + d);
        }
        #pragma unroll
        for (int r = 0; r < TILE; r++) {
            float rest = 0.0f;
            for (int n = d; n < HEAD_DIM; n++)
                rest += LOAD(KEY_TYPE, key, n) * query[r * QUERY_PITCH + n];
            s[r * BLOCK + k] = sum_of(sum[r] + other[r]) + rest;
        }
    }
}

/* What a row has so far; its output is in local memory. */
typedef struct row_state {
    float top, sum;
} row_state;

/* s = exp(s - new maximum), 0 from count on; the sum joins the row's, and output and sum are scaled
 * down if the maximum moved. A row that has seen no key yet has the maximum -inf, and 0 takes its
 * place. */
static void exponentiate(__local float *s, row_state *row, __local float *output, int count)
{
    for (int k = count; k < (count + 7) / 8 * 8; k++)
        s[k] = -INFINITY;
    float8 most = (float8)(-INFINITY);
    for (int k = 0; k < count; k += 8) {
        const float8 x = vload8(0, s + k);
        most = select(most, x, x > most);
    }
    const float4 four = fmax(most.lo, most.hi);
    const float2 two = fmax(four.lo, four.hi);
    const float top = fmax(row->top, fmax(two.x, two.y));
    const float base = top == -INFINITY ? 0.0f : top;
    if (top > row->top) {
        const float keep = exp(row->top - base);
        row->sum *= keep;
        for (int d = 0; d < VALUE_DIM; d++)
            output[d] *= keep;
        row->top = top;
    }
    float8 sum = (float8)(0.0f);
    for (int k = 0; k < count; k += 8) {
        const float8 e = power_of_2((vload8(0, s + k) - base) * LOG2_E);
        vstore8(e, 0, s + k);
        sum += e;
    }
    row->sum += sum_of(sum);
}

/* sum[row][v] = sum over k of s[row][k] value[k][d + 8 v ..]; guarded: passing over keys of weight
 * 0, whatever stands there, since 0 * NaN is NaN. */
#define SUM_VALUES(vectors, guarded)                                                               \
    _Pragma("unroll") for (int r = 0; r < TILE; r++)                                               \
        _Pragma("unroll") for (int v = 0; v < vectors; v++)                                        \
            sum[r][v] = (float8)(0.0f);                                                            \
    for (int k = 0; k < count; k++) {                                                              \
        __global const STORED(KEY_TYPE) *value = values + k * stride + d;                          \
        _Pragma("unroll") for (int v = 0; v < vectors; v++) {                                      \
            const float8 x = LOAD8(KEY_TYPE, value, 8 * v);                                        \
            _Pragma("unroll") for (int r = 0; r < TILE; r++)                                       \
                if (!(guarded) || s[r * BLOCK + k] != 0.0f)                                        \
                    sum[r][v] += s[r * BLOCK + k] * x;                                             \
        }                                                                                          \
    }

/* `vectors` of 8 dims from d on join the output. The guard is for blocks where it makes a
 * difference, which their sums tell, by their bits: a compiler may hold 0 * x for 0. */
#define WEIGH_DIMS(vectors)                                                                        \
    {                                                                                              \
        float8 sum[TILE][vectors];                                                                 \
        SUM_VALUES(vectors, 0)                                                                     \
        int8 wild = (int8)(0);                                                                     \
        _Pragma("unroll") for (int r = 0; r < TILE; r++)                                           \
            _Pragma("unroll") for (int v = 0; v < vectors; v++)                                    \
                wild |= (as_int8(sum[r][v]) & 0x7f800000) == 0x7f800000;                           \
        if (any(wild)) {                                                                           \
            SUM_VALUES(vectors, 1)                                                                 \
        }                                                                                          \
        _Pragma("unroll") for (int r = 0; r < TILE; r++)                                           \
            _Pragma("unroll") for (int v = 0; v < vectors; v++) {                                  \
                __local float *at = output + r * VALUE_DIM + d + 8 * v;                            \
                vstore8(vload8(0, at) + sum[r][v], 0, at);                                         \
            }                                                                                      \
    }

/* output[row][d] += sum over k of s[row][k] value[k][d]; output is [TILE][VALUE_DIM]. */
static void weigh_values(__local float *output, __local const float *s,
                         __global const STORED(KEY_TYPE) *values, ulong stride, int count)
{
    int d = 0;
    for (; d + 8 * SLICE <= VALUE_DIM; d += 8 * SLICE)
        WEIGH_DIMS(SLICE)
    for (; d + 8 <= VALUE_DIM; d += 8)
        WEIGH_DIMS(1)
    for (; d < VALUE_DIM; d++)
        for (int r = 0; r < TILE; r++) {
            float sum = 0.0f;
            for (int k = 0; k < count; k++)
                if (s[r * BLOCK + k] != 0.0f)
                    sum += s[r * BLOCK + k] * LOAD(KEY_TYPE, values, k * stride + d);
            output[r * VALUE_DIM + d] += sum;
        }
}

/* Scores of keys k0 .. k0 + count - 1 of one row: all rules. */
static void rule(__local float *s, const rules_row *row, int k0, int count)
{
    for (int k = 0; k < count; k++) {
        const int j = k0 + k;
        if (j < row->first || j >= row->end)
            s[k] = -INFINITY;
        else if (USES_EACH)
            s[k] = rules_bias(row, rules_cap(row, s[k]), j);
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void decode_cpu_part(__global float *parts, ulong parts_offset, ATTEND_GIVEN)
{
    ATTEND_TAKE
    __local float query_pool[PADDED_ROWS * QUERY_PITCH];
    __local float output_pool[PADDED_ROWS * VALUE_DIM];
    __local float s[TILE * BLOCK];
    const int kv_heads = heads / group;

    for (int g = (int)get_group_id(1); g < batch * kv_heads; g += (int)get_num_groups(1)) {
        const int b = g / kv_heads;
        const int h0 = g % kv_heads * group;
        rules_span span;
        RULES_SPAN_OF(&span, b);
        const int rows = group * span.queries;
        if (rows == 0)
            continue;
        __global const STORED(KEY_TYPE) *keys = key + key_offset + b * key_batch
                                                + g % kv_heads * key_head + span.key_row * key_row;
        __global const STORED(KEY_TYPE) *values = value + value_offset + b * value_batch
                                                  + g % kv_heads * value_head
                                                  + span.key_row * value_row;
        /* Row r is query r % queries of head h0 + r / queries; rows past the last repeat it. */
        row_state states[PADDED_ROWS];
        int least = span.length;
        int most = 0;
        for (int r = 0; r < PADDED_ROWS; r++) {
            const int i = min(r, rows - 1) % span.queries;
            const int h = h0 + min(r, rows - 1) / span.queries;
            rules_row row;
            RULES_OF(&row, b, h, i);
            least = min(least, row.first);
            most = max(most, row.end);
            states[r].top = -INFINITY;
            states[r].sum = 0.0f;
            for (int d = 0; d < HEAD_DIM; d++)
                query_pool[r * QUERY_PITCH + d]
                    = scale * LOAD(QUERY_TYPE, query,
                                   query_offset + b * query_batch + h * query_head
                                       + (span.query_row + i) * query_row + d);
            for (int d = 0; d < VALUE_DIM; d++)
                output_pool[r * VALUE_DIM + d] = 0.0f;
        }

        const int num_parts = (int)get_num_groups(0);
        const int c = (int)get_group_id(0);
        int from, to;
        decode_share(&from, &to, least, most, c, num_parts);
        int step = BLOCK;
        for (int k0 = from; k0 < to; k0 += step) {
            /* In a ring, a block ends where its rows do. */
            const int row0 = USES_RING ? k0 % key_len : k0;
            step = min(BLOCK, USES_RING ? key_len - row0 : BLOCK);
            const int count = min(step, to - k0);
            for (int r0 = 0; r0 < rows; r0 += TILE) {
                __local float *out = output_pool + r0 * VALUE_DIM;
                score_keys(s, query_pool + r0 * QUERY_PITCH, keys + row0 * key_row, key_row, count);
                for (int r = 0; r < TILE; r++) {
                    const int i = min(r0 + r, rows - 1) % span.queries;
                    const int h = h0 + min(r0 + r, rows - 1) / span.queries;
                    rules_row row;
                    RULES_OF(&row, b, h, i);
                    if (USES_EACH || k0 < row.first || k0 + count > row.end)
                        rule(s + r * BLOCK, &row, k0, count);
                    exponentiate(s + r * BLOCK, &states[r0 + r], out + r * VALUE_DIM, count);
#if USES_DROPOUT
                    attend_drop(s + r * BLOCK, 1, b * heads + h, i, k0, count, RULES_ARGUMENTS);
#endif
                }
                weigh_values(out, s, values + row0 * value_row, value_row, count);
            }
        }

        for (int r = 0; r < rows; r++) {
#if MERGES
            __global float *part = parts + parts_offset + decode_part_at(g, num_parts, c, r);
            for (int d = 0; d < VALUE_DIM; d++)
                part[d] = output_pool[r * VALUE_DIM + d];
            part[VALUE_DIM] = states[r].top;
            part[VALUE_DIM + 1] = states[r].sum;
#else
            decode_finish(output_pool + r * VALUE_DIM, states[r].top, states[r].sum, b,
                          h0 + r / span.queries, span.query_row + r % span.queries,
                          ATTEND_ARGUMENTS);
#endif
        }
    }
}

#if MERGES
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void decode_cpu_merge(__global const float *parts, ulong parts_offset, int num_parts, ATTEND_GIVEN)
{
    ATTEND_TAKE
    __local float out[VALUE_DIM];
    decode_merge(out, parts + parts_offset, num_parts, ATTEND_ARGUMENTS);
}
#endif
