/* Attention in one pass over the keys with a running maximum and sum (Dao et al., "FlashAttention",
 * 2022), as GPUs like it: a work-group shares slices of its operands in local memory, and each
 * work-item keeps an 8 x 8 tile of the scores and one of the output in registers. Scores are never
 * stored.
 *
 * Build options: LANES work-items across, 4, 8 or 16; HEAD_DIM, VALUE_DIM, QUERY_TYPE, KEY_TYPE (of
 * value as well), OUTPUT_TYPE; those of rules.h.
 *
 * Work-group (t, g): tile t of the output of one batch and head, g counting those; a group goes on
 * with g + number of groups, so that the grid may be smaller than batch * heads. The tile is ROWS
 * queries high and WIDE value dims wide; where VALUE_DIM is wider, several work-groups make the
 * same scores. A step along the keys takes WIDE of them as well, so both products are one function.
 *
 * Work-item (x, y) has rows 4 y .. 4 y + 3 and that + 4 HIGH, and keys, then value dims, 4 x ..
 * 4 x + 3 and that + 4 LANES: quads, which it reads from local memory as a float4 each. */
#include "attend.h"

#define HIGH 8
#define GROUP (LANES * HIGH)
#define ROWS (8 * HIGH)
#define WIDE (8 * LANES)
/* Of dims in the first product and of keys in the second: 16 is the most that leaves a compute unit
 * with 64 KiB room for four work-groups of 128 work-items. */
#define SLICE 16
/* Columns of the scores that a work-item has in a slice of keys. */
#define SHARE (SLICE / LANES)
/* From one line of a slice to the next, in float4: one more than the line, since lines are written
 * element by element across. */
#define ROW_PITCH (ROWS / 4 + 1)
#define WIDE_PITCH (WIDE / 4 + 1)
/* exp(x) = exp2(x LOG2E): GPUs have an exp2. */
#define LOG2E 1.44269504f

/* Tiles in registers: [column][quad of rows], indexed by constants only, or a GPU would keep them
 * in memory. So all loops over them unroll, and their functions are inlined. */
#define UNROLL _Pragma("unroll")
#define INLINED static inline __attribute__((always_inline))

/* Key or value dim of column c of work-item x, from the tile's first. */
static int column_of(int x, int c)
{
    return 4 * x + c % 4 + c / 4 * 4 * LANES;
}

/* Four elements from `from` on of a row of `dims`, as float32. Past its end it gives elements of
 * the row again: a clamped address is cheaper than a branch. whole: no quad crosses the end.
 * aligned: each quad's address is a multiple of its size, so that one load does where vload4, which
 * may not take that for granted, makes four. */
#define QUAD(type, buffer, row, from, dims, whole, aligned)                                        \
    (!(whole) ? (float4)(LOAD(type, buffer, (row) + min(from, (dims) - 1)),                        \
                         LOAD(type, buffer, (row) + min((from) + 1, (dims) - 1)),                  \
                         LOAD(type, buffer, (row) + min((from) + 2, (dims) - 1)),                  \
                         LOAD(type, buffer, (row) + min((from) + 3, (dims) - 1)))                  \
     : (aligned) ? TYPE_JOIN(quad_aligned_, type)(buffer + (row) + min(from, (dims) - 4))          \
                 : TYPE_JOIN(quad_any_, type)(buffer + (row) + min(from, (dims) - 4)))

static float4 quad_any_1(__global const float *from)
{
    return vload4(0, from);
}

static float4 quad_any_2(__global const ushort *from)
{
    /* By way of an aligned copy, as PoCL's vload_half4 takes any address for aligned. */
    const ushort4 bits = vload4(0, from);
    return vload_half4(0, (const half *)&bits);
}

static float4 quad_any_3(__global const ushort *from)
{
    return as_float4(convert_uint4(vload4(0, from)) << 16);
}

static float4 quad_aligned_1(__global const float *from)
{
    return *(__global const float4 *)from;
}

static float4 quad_aligned_2(__global const ushort *from)
{
    const ushort4 bits = *(__global const ushort4 *)from;
    return vload_half4(0, (const half *)&bits);
}

static float4 quad_aligned_3(__global const ushort *from)
{
    return as_float4(convert_uint4(*(__global const ushort4 *)from) << 16);
}

/* slice[d][i] = element d0 + d of row i, 0 beyond HEAD_DIM. Rows from `count` on repeat the last
 * one: they are excluded, or not written. */
#define STAGE_TURNED(type, slice, pitch, rows, from, stride, count, d0, aligned)                   \
    for (int e = (int)get_local_id(0); e < rows * SLICE / 4; e += GROUP) {                         \
        const int i = e / (SLICE / 4);                                                             \
        const int d = e % (SLICE / 4) * 4;                                                         \
        const float4 q = QUAD(type, from, min(i, (count) - 1) * stride, d0 + d, HEAD_DIM,          \
                              HEAD_DIM % 4 == 0, aligned);                                         \
        const int left = HEAD_DIM - d0 - d;                                                        \
        slice[d * pitch + i] = left > 0 ? q.x : 0.0f;                                              \
        slice[(d + 1) * pitch + i] = left > 1 ? q.y : 0.0f;                                        \
        slice[(d + 2) * pitch + i] = left > 2 ? q.z : 0.0f;                                        \
        slice[(d + 3) * pitch + i] = left > 3 ? q.w : 0.0f;                                        \
    }

INLINED void stage_query(__local float *slice, __global const STORED(QUERY_TYPE) *query,
                         ulong stride, int count, int d0, int aligned)
{
    if (aligned)
        STAGE_TURNED(QUERY_TYPE, slice, ROW_PITCH * 4, ROWS, query, stride, count, d0, 1)
    else
        STAGE_TURNED(QUERY_TYPE, slice, ROW_PITCH * 4, ROWS, query, stride, count, d0, 0)
}

INLINED void stage_key(__local float *slice, __global const STORED(KEY_TYPE) *key, ulong stride,
                       int count, int d0, int aligned)
{
    if (aligned)
        STAGE_TURNED(KEY_TYPE, slice, WIDE_PITCH * 4, WIDE, key, stride, count, d0, 1)
    else
        STAGE_TURNED(KEY_TYPE, slice, WIDE_PITCH * 4, WIDE, key, stride, count, d0, 0)
}

/* Values of the keys of the columns from c0 on, in the order in which share_scores lays those down.
 * An infinity or NaN is left to add_wild, and *wild set. */
#define STAGE_VALUE(slice, wild, value, stride, count, dims, c0, aligned)                          \
    for (int e = (int)get_local_id(0); e < SLICE * WIDE / 4; e += GROUP) {                         \
        const int n = e / (WIDE / 4);                                                              \
        const int d = e % (WIDE / 4);                                                              \
        const int j = column_of(n % LANES, c0 + n / LANES);                                        \
        const float4 v = QUAD(KEY_TYPE, value, min(j, (count) - 1) * stride, 4 * d, dims,          \
                              VALUE_DIM % 4 == 0, aligned);                                        \
        const int4 tame = isfinite(v);                                                             \
        slice[n * WIDE_PITCH + d] = select((float4)(0.0f), v, tame);                               \
        if (!all(tame))                                                                            \
            atomic_or(wild, 1);                                                                    \
    }

INLINED void stage_value(__local float4 *slice, __local int *wild,
                         __global const STORED(KEY_TYPE) *value, ulong stride, int count, int dims,
                         int c0, int aligned)
{
    if (aligned)
        STAGE_VALUE(slice, wild, value, stride, count, dims, c0, 1)
    else
        STAGE_VALUE(slice, wild, value, stride, count, dims, c0, 0)
}

/* tile += rows slice^T wide slice, at the work-item's place. */
INLINED void multiply(float4 tile[8][2], __local const float4 *rows, __local const float4 *wide)
{
    /* Four steps at once hide the latency of local memory; all 16 would not fit the registers. */
    _Pragma("unroll 1") for (int n = 0; n < SLICE; n += 4) {
        UNROLL for (int k = n; k < n + 4; k++) {
            UNROLL for (int q = 0; q < 2; q++) {
                const float4 b = wide[k * WIDE_PITCH + q * LANES];
                UNROLL for (int r = 0; r < 2; r++) {
                    const float4 a = rows[k * ROW_PITCH + r * HIGH];
                    tile[4 * q][r] += b.x * a;
                    tile[4 * q + 1][r] += b.y * a;
                    tile[4 * q + 2][r] += b.z * a;
                    tile[4 * q + 3][r] += b.w * a;
                }
            }
        }
    }
}

/* output += probs value for the values that are infinite or NaN, of which nothing may come where
 * the prob is 0, as of an excluded key: 0 times them is NaN. Rare, so it is to be short; and no
 * other branch of multiply, since that would hold the tile in registers twice. */
INLINED void add_wild(float4 out[8][2], __local const float4 *probs,
                      __global const STORED(KEY_TYPE) *value, ulong stride, int count, int dims,
                      int c0, int x)
{
    _Pragma("unroll 1") for (int n = 0; n < SLICE; n++) {
        const int j = column_of(n % LANES, c0 + n / LANES);
        UNROLL for (int c = 0; c < 8; c++) {
            const float v = LOAD(KEY_TYPE, value,
                                 min(j, count - 1) * stride + min(column_of(x, c), dims - 1));
            if (!isfinite(v))
                UNROLL for (int r = 0; r < 2; r++) {
                    const float4 p = probs[n * ROW_PITCH + r * HIGH];
                    out[c][r] += select(p * v, (float4)(0.0f), p == 0.0f);
                }
        }
    }
}

/* Columns c0 .. c0 + SHARE - 1 of all work-items' tiles: to the slice, and back from it. */
INLINED void share_scores(__local float4 *slice, float4 tile[8][2], int c0, int x, int y)
{
    UNROLL for (int c = 0; c < SHARE; c++)
        UNROLL for (int r = 0; r < 2; r++)
            slice[(c * LANES + x) * ROW_PITCH + r * HIGH + y] = tile[c0 + c][r];
}

INLINED void take_scores(float4 tile[8][2], __local const float4 *slice, int c0, int x, int y)
{
    UNROLL for (int c = 0; c < SHARE; c++)
        UNROLL for (int r = 0; r < 2; r++)
            tile[c0 + c][r] = slice[(c * LANES + x) * ROW_PITCH + r * HIGH + y];
}

/* Scaled scores of one row in a slice of shared ones, from key n0 in steps: all rules. Keys from
 * `limit` on are excluded. */
static void rule(__local float *slice, const rules_row *row, int j0, int limit, int c0, int n0,
                 int step)
{
    const int end = min(row->end, limit);
    for (int n = n0; n < SLICE; n += step) {
        const int j = j0 + column_of(n % LANES, c0 + n / LANES);
        const float s = slice[n * ROW_PITCH * 4];
        slice[n * ROW_PITCH * 4] = j >= row->first && j < end
                                       ? rules_bias(row, rules_cap(row, s), j)
                                       : -INFINITY;
    }
}

/* Scores of keys from j0 on outside of the rows' ranges, or from `limit` on: excluded. */
INLINED void exclude(float4 score[8][2], __local const int4 *first, __local const int4 *end, int j0,
                     int limit, int x)
{
    UNROLL for (int r = 0; r < 2; r++)
        UNROLL for (int c = 0; c < 8; c++) {
            const int4 j = (int4)(j0 + column_of(x, c));
            score[c][r] = select((float4)(-INFINITY), score[c][r],
                                 j >= first[r * HIGH] && j < min(end[r * HIGH], (int4)(limit)));
        }
}

/* The largest of each row, or the sum over the work-items across; pool is [LANES][ROWS / 4]. A NaN
 * is no maximum: what becomes of its score brings it back. */
INLINED float4 row_top(__local const float4 *pool, float4 top)
{
    UNROLL for (int x = 0; x < LANES; x++)
        top = fmax(top, pool[x * (ROWS / 4)]);
    return top;
}

INLINED float4 row_sum(__local const float4 *pool)
{
    float4 sum = (float4)(0.0f);
    UNROLL for (int x = 0; x < LANES; x++)
        sum += pool[x * (ROWS / 4)];
    return sum;
}

/* What is subtracted before the exponential: 0 where a row has seen no key, as -inf - -inf is
 * NaN. */
INLINED float4 base_of(float4 top)
{
    return select(top, (float4)(0.0f), top == -INFINITY);
}

/* Scores to exp(score - top), with top, sum and output carried along. The sum is the work-item's
 * own keys' only. */
INLINED void soften(float4 score[8][2], float4 out[8][2], float4 top[2], float4 sum[2],
                    __local float4 *pool, int x, int y)
{
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int r = 0; r < 2; r++) {
        float4 most = score[0][r];
        UNROLL for (int c = 1; c < 8; c++)
            most = fmax(most, score[c][r]);
        pool[x * (ROWS / 4) + r * HIGH + y] = most;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int r = 0; r < 2; r++) {
        const float4 before = top[r];
        top[r] = row_top(pool + r * HIGH + y, before);
        const float4 base = base_of(top[r]);
        const float4 keep = exp2((before - base) * LOG2E);
        sum[r] *= keep;
        UNROLL for (int c = 0; c < 8; c++) {
            out[c][r] *= keep;
            score[c][r] = exp2((score[c][r] - base) * LOG2E);
            sum[r] += score[c][r];
        }
    }
}

#if USES_DROPOUT
/* The quad of keys 4 q of one row, `lane` of quad r of the tile's rows. */
#define DROP_ROW(n, lane)                                                                          \
    {                                                                                              \
        const uint4 w = dropout_words(g, i + n, j, dropout_low, dropout_high, dropout_offset);     \
        score[4 * q][r].lane *= dropout_keep(w.x, dropout_threshold, dropout_scale);               \
        score[4 * q + 1][r].lane *= dropout_keep(w.y, dropout_threshold, dropout_scale);           \
        score[4 * q + 2][r].lane *= dropout_keep(w.z, dropout_threshold, dropout_scale);           \
        score[4 * q + 3][r].lane *= dropout_keep(w.w, dropout_threshold, dropout_scale);           \
    }

/* Scores of batch and head g, queries from i0 on and keys from j0 on, a multiple of 4. */
INLINED void drop(float4 score[8][2], int g, int i0, int j0, int x, int y, RULES_PARAMETERS)
{
    UNROLL for (int r = 0; r < 2; r++)
        UNROLL for (int q = 0; q < 2; q++) {
            const int i = i0 + 4 * y + r * 4 * HIGH;
            const int j = j0 + column_of(x, 4 * q);
            DROP_ROW(0, x)
            DROP_ROW(1, y)
            DROP_ROW(2, z)
            DROP_ROW(3, w)
        }
}
#endif

/* Which keys the rows of a tile see: those from .x to before .y at the most, and all rows those
 * from .z to before .w. */
static int4 range_of(__local const int4 *first, __local const int4 *end)
{
    int4 low = first[0], high = end[0], most = first[0], least = end[0];
    for (int q = 1; q < ROWS / 4; q++) {
        low = min(low, first[q]);
        most = max(most, first[q]);
        high = max(high, end[q]);
        least = min(least, end[q]);
    }
    low.xy = min(low.xy, low.zw);
    most.xy = max(most.xy, most.zw);
    high.xy = max(high.xy, high.zw);
    least.xy = min(least.xy, least.zw);
    return (int4)(min(low.x, low.y), max(high.x, high.y), max(most.x, most.y),
                  min(least.x, least.y));
}

/* A quad of one row of the output. */
static void write_quad(__global STORED(OUTPUT_TYPE) *row, float4 x, int d, int dims)
{
    if (d < dims)
        STORE(OUTPUT_TYPE, x.x, row, d);
    if (d + 1 < dims)
        STORE(OUTPUT_TYPE, x.y, row, d + 1);
    if (d + 2 < dims)
        STORE(OUTPUT_TYPE, x.z, row, d + 2);
    if (d + 3 < dims)
        STORE(OUTPUT_TYPE, x.w, row, d + 3);
}
/* The work-item's part of row 4 y + n of quad r; lane: x for n = 0 ... */
#define WRITE_ROW(n, lane)                                                                         \
    if (i + n < num_rows)                                                                          \
        UNROLL for (int q = 0; q < 2; q++)                                                         \
            write_quad(to + (i + n) * output_row,                                                  \
                       (float4)(out[4 * q][r].lane, out[4 * q + 1][r].lane,                        \
                                out[4 * q + 2][r].lane, out[4 * q + 3][r].lane) * scale_out.lane,  \
                       4 * x + q * 4 * LANES, dims);                                               \
    if (i + n < num_rows && lse && v0 == 0 && x == 0)                                              \
        lse[lse_offset + b * lse_batch + h * lse_head + (span.query_row + i0 + i + n) * lse_row]   \
            = log_sum.lane;

/* Whether every row begins at a multiple of four elements. A buffer made of the caller's own memory
 * (CL_MEM_USE_HOST_PTR) may begin anywhere. */
#define ALIGNED(buffer, offset, batch, head, row)                                                  \
    (((offset | batch | head | row) & 3) == 0                                                      \
     && ((uintptr_t)(buffer) & (4 * sizeof *(buffer) - 1)) == 0)

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void attend_gpu_tile(ATTEND_GIVEN)
{
    ATTEND_TAKE
    __local float4 rows[SLICE * ROW_PITCH];  /* of query, scores or probs: [SLICE][ROWS] */
    __local float4 wide[SLICE * WIDE_PITCH]; /* of key or value: [SLICE][WIDE] */
    __local int4 first[ROWS / 4], end[ROWS / 4]; /* see rules_row */
    __local int wild;
    const int item = (int)get_local_id(0);
    const int x = item % LANES;
    const int y = item / LANES;
    const int across = (VALUE_DIM + WIDE - 1) / WIDE;
    const int v0 = (int)get_group_id(0) % across * WIDE;
    const int dims = min(WIDE, VALUE_DIM - v0);
    /* From the last queries to the first: with causal those have the most work, and what starts
     * last should be short. */
    const int i0 = ((query_len + ROWS - 1) / ROWS - 1 - (int)get_group_id(0) / across) * ROWS;
    const int query_aligned = ALIGNED(query, query_offset, query_batch, query_head, query_row);
    const int key_aligned = ALIGNED(key, key_offset, key_batch, key_head, key_row);
    const int value_aligned = ALIGNED(value, value_offset, value_batch, value_head, value_row);

    for (int g = (int)get_group_id(1); g < batch * heads; g += (int)get_num_groups(1)) {
        const int b = g / heads;
        const int h = g % heads;
        rules_span span;
        RULES_SPAN_OF(&span, b);
        const int num_rows = min(ROWS, span.queries - i0);
        if (num_rows <= 0)
            continue;
        __global const STORED(QUERY_TYPE) *q = query + query_offset + b * query_batch
                                               + h * query_head + (span.query_row + i0) * query_row;
        __global const STORED(KEY_TYPE) *k = key + key_offset + b * key_batch
                                             + h / group * key_head + span.key_row * key_row;
        __global const STORED(KEY_TYPE) *v = value + value_offset + b * value_batch
                                             + h / group * value_head + span.key_row * value_row
                                             + v0;

        for (int i = item; i < ROWS; i += GROUP) {
            rules_row row;
            RULES_OF(&row, b, h, i0 + min(i, num_rows - 1));
            ((__local int *)first)[i] = row.first;
            ((__local int *)end)[i] = row.end;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        const int4 range = range_of(first, end);

        float4 out[8][2], top[2], sum[2];
        UNROLL for (int r = 0; r < 2; r++) {
            top[r] = (float4)(-INFINITY);
            sum[r] = (float4)(0.0f);
            UNROLL for (int c = 0; c < 8; c++)
                out[c][r] = (float4)(0.0f);
        }

        int step = WIDE;
        for (int j0 = USES_DROPOUT ? range.x & ~3 : range.x; j0 < range.y; j0 += step) {
            /* In a ring, a step ends where its rows do. */
            const int row0 = USES_RING ? j0 % key_len : j0;
            const int left = (USES_RING ? key_len : span.rows) - row0;
            if (USES_RING)
                step = min(WIDE, left);
            float4 score[8][2];
            UNROLL for (int r = 0; r < 2; r++)
                UNROLL for (int c = 0; c < 8; c++)
                    score[c][r] = (float4)(0.0f);
            _Pragma("unroll 1") for (int d = 0; d < HEAD_DIM; d += SLICE) {
                barrier(CLK_LOCAL_MEM_FENCE);
                stage_query((__local float *)rows, q, query_row, num_rows, d, query_aligned);
                stage_key((__local float *)wide, k + row0 * key_row, key_row, left, d, key_aligned);
                barrier(CLK_LOCAL_MEM_FENCE);
                multiply(score, rows + y, wide + x);
            }
            UNROLL for (int r = 0; r < 2; r++)
                UNROLL for (int c = 0; c < 8; c++)
                    score[c][r] *= scale;

            const int whole = j0 >= range.z && j0 + WIDE <= range.w
                              && left >= (USES_RING ? WIDE : 0);
            if (USES_EACH) {
                UNROLL for (int c = 0; c < 8; c += SHARE) {
                    barrier(CLK_LOCAL_MEM_FENCE);
                    share_scores(rows, score, c, x, y);
                    barrier(CLK_LOCAL_MEM_FENCE);
                    for (int i = item % ROWS; i < ROWS; i += GROUP) {
                        rules_row row;
                        RULES_OF(&row, b, h, i0 + min(i, num_rows - 1));
                        rule((__local float *)rows + i, &row, j0, j0 + step, c, item / ROWS,
                             (GROUP + ROWS - 1) / ROWS);
                    }
                    barrier(CLK_LOCAL_MEM_FENCE);
                    take_scores(score, rows, c, x, y);
                }
            } else if (!whole) {
                exclude(score, first + y, end + y, j0, j0 + step, x);
            }
            if (item == 0)
                wild = 0;
            soften(score, out, top, sum, rows, x, y);
#if USES_DROPOUT
            drop(score, g, i0, j0, x, y, RULES_ARGUMENTS);
#endif

            UNROLL for (int c = 0; c < 8; c += SHARE) {
                barrier(CLK_LOCAL_MEM_FENCE);
                share_scores(rows, score, c, x, y);
                stage_value(wide, &wild, v + row0 * value_row, value_row, left, dims, c,
                            value_aligned);
                barrier(CLK_LOCAL_MEM_FENCE);
                multiply(out, rows + y, wide + x);
                if (wild)
                    add_wild(out, rows + y, v + row0 * value_row, value_row, left, dims, c, x);
            }
        }

        /* The output may be the query: the last of this work-group's reads of it are over here. */
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        UNROLL for (int r = 0; r < 2; r++)
            rows[x * (ROWS / 4) + r * HIGH + y] = sum[r];
        barrier(CLK_LOCAL_MEM_FENCE);
        __global STORED(OUTPUT_TYPE) *to = output + output_offset + b * output_batch
                                           + h * output_head
                                           + (span.query_row + i0) * output_row + v0;
        const float4 sink = (float4)(sinks ? sinks[sinks_offset + h] : -INFINITY);
        UNROLL for (int r = 0; r < 2; r++) {
            const float4 most = fmax(top[r], sink);
            const float4 base = base_of(most);
            const float4 keep = exp2((top[r] - base) * LOG2E);
            const float4 all = row_sum(rows + r * HIGH + y) * keep + exp2((sink - base) * LOG2E);
            const float4 scale_out = select(keep / all, (float4)(0.0f), all == 0.0f);
            const float4 log_sum = base + log(all);
            const int i = 4 * y + r * 4 * HIGH;
            WRITE_ROW(0, x)
            WRITE_ROW(1, y)
            WRITE_ROW(2, z)
            WRITE_ROW(3, w)
        }
        /* Before first and end change. Not at the top: where a `continue` goes past all barriers, PoCL
         * 3.1 lets its first work-item decide for all of them what it does after the last one. */
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
