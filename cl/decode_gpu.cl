/* Attention of few queries to many keys, as decode_cpu.cl does it, laid out for GPUs: a work-group
 * has a part of the keys of one batch and key head, and goes over it in blocks with a running
 * maximum and sum. Keys and values come from memory with neighbouring work-items at neighbouring
 * elements, once for all query rows of the work-group.
 *
 * Build options: GROUP work-items, a multiple of 32; TILE of the query rows together, a power of
 * 2 and at most GROUP; MERGES 0: there is one part, and it is the output; those of decode.h and
 * rules.h.
 *
 * Work-group (g * number of parts + c) * tiles + t: part c of the keys and TILE query rows from t
 * TILE on, of batch and key head g. There is one for each, since a loop over g would take too many
 * registers of some GPUs.
 *
 * In a block, work-item k has key k's products with all rows. Its key comes by way of local
 * memory, a slice of dims at a time: straight from memory, neighbouring work-items would read whole
 * rows apart; and shared out over the dims of a key instead, each of its products would be a sum
 * over work-items. Then a work-item has row item % TILE of the block's softmax, with GROUP / TILE
 * others; and then the value dims item, item + GROUP and so on of all rows, in registers. */
#include "decode.h"

/* Keys of a block: one for each work-item. */
#define KEYS GROUP
/* Dims of a slice: few enough that more than four work-groups have room on a compute unit with 64
 * KiB, and GROUP is a multiple of it. */
#define SLICE (HEAD_DIM > 16 ? 32 : 16)
/* From one key of a slice to the next, in float4: odd, so that neighbours meet in no bank. */
#define KEY_PITCH (SLICE / 4 + 1)
/* Keys whose values are loaded together: more hide more of the time that memory takes. */
#define TOGETHER 4
/* Value dims of a work-item. */
#define COLUMNS ((VALUE_DIM + GROUP - 1) / GROUP)

/* Arrays in registers are indexed by constants only, or a GPU would keep them in memory: their
 * loops unroll, and their functions are inlined. */
#define INLINED static inline __attribute__((always_inline))

/* slice[k][d] = element d0 + d of key k, 0 beyond HEAD_DIM. Keys from `count` on repeat the last
 * one: they are excluded. */
INLINED void stage_keys(__local float *slice, __global const STORED(KEY_TYPE) *keys, ulong stride,
                        int count, int d0)
{
    const int d = ITEM % SLICE;
    const int step = GROUP / SLICE;
    __global const STORED(KEY_TYPE) *at = keys + min(ITEM / SLICE, count - 1) * stride
                                          + min(d0 + d, HEAD_DIM - 1);
    #pragma unroll 8
    for (int n = 0; n < KEYS / step; n++) {
        const int k = ITEM / SLICE + n * step;
        const float x = LOAD(KEY_TYPE, at, 0);
        slice[k * KEY_PITCH * 4 + d] = HEAD_DIM % SLICE == 0 || d0 + d < HEAD_DIM ? x : 0.0f;
        at += k + step < count ? step * stride : 0;
    }
}

/* slice[r][d] = scale * element d0 + d of row r, that from begin[r] on, 0 beyond HEAD_DIM. */
INLINED void stage_queries(__local float *slice, __global const STORED(QUERY_TYPE) *query,
                           __local const ulong *begin, float scale, int d0)
{
    for (int e = ITEM; e < TILE * SLICE; e += GROUP) {
        const int d = d0 + e % SLICE;
        const float x = LOAD(QUERY_TYPE, query, begin[e / SLICE] + min(d, HEAD_DIM - 1));
        slice[e] = d < HEAD_DIM ? scale * x : 0.0f;
    }
}

/* sum[r] += key . row r over a slice, each lane over every other dim: one sum would wait for
 * itself, and four would not fit the registers of all GPUs. */
INLINED void multiply(float2 sum[TILE], __local const float4 *key, __local const float4 *queries)
{
    #pragma unroll 2
    for (int q = 0; q < SLICE / 4; q++) {
        const float4 x = key[q];
        #pragma unroll
        for (int r = 0; r < TILE; r++) {
            const float4 y = queries[r * (SLICE / 4) + q];
            sum[r] += x.lo * y.lo;
            sum[r] += x.hi * y.hi;
        }
    }
}

/* The work-item's scores, [KEYS][TILE] and `count` keys from k0 on: all rules. Returns their
 * maximum. */
static float rule(__local float *s, const rules_row *row, int k0, int count)
{
    float most = -INFINITY;
    for (int e = ITEM; e < KEYS * TILE; e += GROUP) {
        const int j = k0 + e / TILE;
        float x = s[e];
        if (j >= k0 + count || j < row->first || j >= row->end)
            x = -INFINITY;
        else if (USES_EACH)
            x = rules_bias(row, rules_cap(row, x), j);
        s[e] = x;
        most = fmax(most, x);
    }
    return most;
}

/* The largest or the sum of a row's numbers; the row's first of pool, which is [GROUP /
 * TILE][TILE]. */
static float row_top(__local const float *pool, float top)
{
    for (int l = 0; l < GROUP; l += TILE)
        top = fmax(top, pool[l]);
    return top;
}

static float row_sum(__local const float *pool)
{
    float sum = 0.0f;
    for (int l = 0; l < GROUP; l += TILE)
        sum += pool[l];
    return sum;
}

/* sum[c][r] = sum over k of weight[k][r] value[k][dim c]; guarded: passing over keys of weight 0,
 * whatever stands there, since 0 * NaN is NaN. */
INLINED void sum_values(float sum[COLUMNS][TILE], __local const float4 *weights,
                        __global const STORED(KEY_TYPE) *values, ulong stride, int count,
                        int guarded)
{
    #pragma unroll
    for (int c = 0; c < COLUMNS; c++)
        #pragma unroll
        for (int r = 0; r < TILE; r++)
            sum[c][r] = 0.0f;
    for (int k = 0; k < count; k += TOGETHER) {
        float weight[TOGETHER * TILE];
        #pragma unroll
        for (int q = 0; q < TOGETHER * TILE / 4; q++)
            vstore4(weights[k * TILE / 4 + q], q, weight);
        #pragma unroll
        for (int n = 0; n < TOGETHER; n++) {
            #pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                const int d = ITEM + c * GROUP;
                const float x = LOAD(KEY_TYPE, values,
                                     VALUE_DIM % GROUP == 0 ? d : min(d, VALUE_DIM - 1));
                #pragma unroll
                for (int r = 0; r < TILE; r++)
                    if (!guarded || weight[n * TILE + r] != 0.0f)
                        sum[c][r] += weight[n * TILE + r] * x;
            }
            values += k + n + 1 < count ? stride : 0;
        }
    }
}

/* output[c][r] = keep[r] output[c][r] + sum over k of weight[k][r] value[k][dim c]. The guard is
 * for blocks where it makes a difference, which their sums tell, by their bits: a compiler may hold
 * 0 * x for 0. */
INLINED void weigh(float output[COLUMNS][TILE], __local const float *keep,
                   __local const float4 *weights, __global const STORED(KEY_TYPE) *values,
                   ulong stride, int count)
{
    float sum[COLUMNS][TILE];
    int wild = 0;
    sum_values(sum, weights, values, stride, count, 0);
    #pragma unroll
    for (int c = 0; c < COLUMNS; c++)
        #pragma unroll
        for (int r = 0; r < TILE; r++)
            wild |= (as_int(sum[c][r]) & 0x7f800000) == 0x7f800000;
    if (wild)
        sum_values(sum, weights, values, stride, count, 1);
    #pragma unroll
    for (int c = 0; c < COLUMNS; c++)
        #pragma unroll
        for (int r = 0; r < TILE; r++)
            output[c][r] = output[c][r] * keep[r] + sum[c][r];
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void decode_gpu_part(__global float *parts, ulong parts_offset, ATTEND_GIVEN)
{
    ATTEND_TAKE
    __local float4 key_slice[KEYS * KEY_PITCH];
    __local float4 query_slice[TILE * SLICE / 4];
    __local float4 s[KEYS * TILE / 4]; /* scores, then weights: [KEYS][TILE] */
    __local float pool[GROUP];         /* [GROUP / TILE][TILE] */
    __local float keep[TILE];          /* what a row's output is multiplied by */
    __local ulong begin[TILE];         /* where a row of query begins; at last, of output */
    __local int first[TILE], end[TILE]; /* see rules_row */
    const int item = ITEM;
    const int kv_heads = heads / group;
    const int tiles = (ROWS + TILE - 1) / TILE;
    const int num_parts = (int)get_num_groups(0) / (batch * kv_heads * tiles);
    const int at = (int)get_group_id(0);
    const int r0 = at % tiles * TILE;
    const int c = at / tiles % num_parts;
    const int g = at / tiles / num_parts;
    const int b = g / kv_heads;
    rules_span span;
    RULES_SPAN_OF(&span, b);
    const int rows = group * span.queries;
    const int num_rows = clamp(rows - r0, 0, TILE);
    __global const STORED(KEY_TYPE) *keys = key + key_offset + b * key_batch
                                            + g % kv_heads * key_head + span.key_row * key_row;
    __global const STORED(KEY_TYPE) *values = value + value_offset + b * value_batch
                                              + g % kv_heads * value_head
                                              + span.key_row * value_row;
    /* Row r of a key head is query r % queries of head r / queries; rows past the last repeat it.
     * Where there is none at all, none is read. */
    const int own = max(min(r0 + item % TILE, rows - 1), 0);
    const int i = own % max(span.queries, 1);
    const int h = g % kv_heads * group + own / max(span.queries, 1);
    rules_row row;
    RULES_OF(&row, b, h, i);
    if (item < TILE) {
        begin[item] = query_offset + b * query_batch + h * query_head
                      + (span.query_row + i) * query_row;
        first[item] = row.first;
        end[item] = row.end;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    int least = first[0];
    int most = end[0];
    for (int r = 1; r < TILE; r++) {
        least = min(least, first[r]);
        most = max(most, end[r]);
    }
    int from, to;
    decode_share(&from, &to, least, num_rows ? most : least, c, num_parts);

    float out[COLUMNS][TILE];
    #pragma unroll
    for (int n = 0; n < COLUMNS; n++)
        #pragma unroll
        for (int r = 0; r < TILE; r++)
            out[n][r] = 0.0f;
    float top = -INFINITY;
    float sum = 0.0f; /* of the work-item's own keys */
    int step = KEYS;
    for (int k0 = from; k0 < to; k0 += step) {
        /* In a ring, a block ends where its rows do. */
        const int row0 = USES_RING ? k0 % key_len : k0;
        step = min(KEYS, USES_RING ? key_len - row0 : KEYS);
        const int count = min(step, to - k0);
        float2 product[TILE];
        #pragma unroll
        for (int r = 0; r < TILE; r++)
            product[r] = (float2)(0.0f);
        _Pragma("unroll 1") for (int d0 = 0; d0 < HEAD_DIM; d0 += SLICE) {
            barrier(CLK_LOCAL_MEM_FENCE);
            stage_queries((__local float *)query_slice, query, begin, scale, d0);
            stage_keys((__local float *)key_slice, keys + row0 * key_row, key_row, count, d0);
            barrier(CLK_LOCAL_MEM_FENCE);
            multiply(product, key_slice + item * KEY_PITCH, query_slice);
        }
        #pragma unroll
        for (int r = 0; r < TILE; r++)
            ((__local float *)s)[item * TILE + r] = product[r].x + product[r].y;
        barrier(CLK_LOCAL_MEM_FENCE);
        pool[item] = rule((__local float *)s, &row, k0, count);
        barrier(CLK_LOCAL_MEM_FENCE);
        /* A row that has seen no key yet has the maximum -inf, and 0 takes its place. */
        const float before = top;
        top = row_top(pool + item % TILE, before);
        const float base = top == -INFINITY ? 0.0f : top;
        if (item < TILE)
            keep[item] = exp(before - base);
        sum *= exp(before - base);
        for (int e = item; e < KEYS * TILE; e += GROUP) {
            const float weight = exp(((__local float *)s)[e] - base);
            sum += weight;
            ((__local float *)s)[e] = weight;
#if USES_DROPOUT
            attend_drop((__local float *)s + e, 1, b * heads + h, i, k0 + e / TILE, 1,
                        RULES_ARGUMENTS);
#endif
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        weigh(out, keep, s, values + row0 * value_row, value_row, count);
    }

    /* The output may be the query: the last of this work-group's reads of it are over here. */
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    pool[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
#if MERGES
    __global float *part = parts + parts_offset + decode_part_at(g, num_parts, c, r0);
    #pragma unroll
    for (int r = 0; r < TILE; r++)
        #pragma unroll
        for (int n = 0; n < COLUMNS; n++)
            if (r < num_rows && item + n * GROUP < VALUE_DIM)
                part[r * PART_PITCH + item + n * GROUP] = out[n][r];
    if (item < num_rows) {
        part[item * PART_PITCH + VALUE_DIM] = top;
        part[item * PART_PITCH + VALUE_DIM + 1] = row_sum(pool + item);
    }
#else
    if (item < num_rows) {
        float log_sum;
        begin[item] = output_offset + b * output_batch + h * output_head
                      + (span.query_row + i) * output_row;
        keep[item] = attend_divide(&log_sum, top, row_sum(pool + item),
                                   sinks ? sinks[sinks_offset + h] : -INFINITY);
        if (lse)
            lse[lse_offset + b * lse_batch + h * lse_head + (span.query_row + i) * lse_row]
                = log_sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int r = 0; r < TILE; r++)
        #pragma unroll
        for (int n = 0; n < COLUMNS; n++)
            if (r < num_rows && item + n * GROUP < VALUE_DIM)
                STORE(OUTPUT_TYPE, out[n][r] * keep[r], output, begin[r] + item + n * GROUP);
#endif
}

#if MERGES
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void decode_gpu_merge(__global const float *parts, ulong parts_offset, int num_parts, ATTEND_GIVEN)
{
    ATTEND_TAKE
    __local float out[VALUE_DIM];
    decode_merge(out, parts + parts_offset, num_parts, ATTEND_ARGUMENTS);
}
#endif
