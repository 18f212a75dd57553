/* Attention in one pass over the keys with a running maximum and sum (Dao et al., "FlashAttention",
 * 2022), as GPUs like it: a work-group shares slices of its operands in local memory, and each
 * work-item keeps a tile of the scores and one of the output in registers. Scores are never stored.
 *
 * Build options: HEAD_DIM, VALUE_DIM, QUERY_TYPE, KEY_TYPE (of value as well), OUTPUT_TYPE; those
 * of rules.h; and how the work is cut, for which src/attend_gpu.c has a table:
 * LANES    work-items across, 4, 8 or 16
 * QUADS    of rows in a work-item's tile, 1 or 2: it is 4 QUADS rows high and 8 columns wide
 * SLICE    of dims in the first product and of keys in the second, 16 or 32
 * SCORE_STEPS, VALUE_STEPS  of a slice at once in each product; 4 in the first one if SWIZZLED
 * SWIZZLED 1 where local memory is read and written in another order, see SWIZZLE
 *
 * Work-group (t, g, m): tile t of the output of batch and head g + m * groups along g, counting
 * those; the last m's may be past the last of them. The tile is ROWS queries high and WIDE value
 * dims wide; where VALUE_DIM is wider, several work-groups make the same scores. A step along the
 * keys takes WIDE of them as well, so both products are one function.
 *
 * Work-item (x, y) has rows 4 y .. 4 y + 3 and, if QUADS is 2, that + 4 HIGH; and keys, then value
 * dims, 4 x .. 4 x + 3 and that + 4 LANES: quads, which it reads from local memory as a float4
 * each.
 *
 * Every work-item comes by every barrier, and no loop that has one begins with it: PoCL 3.1 would
 * let the first work-item decide for all of them what comes after the last barrier. */
#define GIVEN_AS_STRUCTS
#include "attend.h"
#include "attend_slices.h"

/* exp(x) = exp2(x LOG2E): GPUs have an exp2. */
#define LOG2E 1.44269504f

/* Where the operands of a work-group's tile are. */
typedef struct tile_operands {
    __global const STORED(QUERY_TYPE) *query;
    __global const STORED(KEY_TYPE) *key;
    __global const STORED(KEY_TYPE) *value;
    ulong query_row, key_row, value_row;
    int query_aligned, key_aligned, value_aligned; /* see QUAD */
    int num_rows, dims;                            /* of the tile that are there */
} tile_operands;

/* score = scale query key^T, for `count` keys from row `row0` on. */
INLINED void score_keys(float4 score[8][QUADS], const tile_operands *from, int row0, int count,
                        float scale, __local float4 *rows, __local float4 *wide, int x, int y)
{
    clear_tile(score);
    _Pragma("unroll 1") for (int d = 0; d < HEAD_DIM; d += SLICE)
    {
        stage_query((__local float *)rows, from->query, from->query_row, from->num_rows, d, scale,
                    from->query_aligned);
        stage_key((__local float *)wide, from->key + row0 * from->key_row, from->key_row, count, d,
                  from->key_aligned);
        barrier(CLK_LOCAL_MEM_FENCE);
        multiply(score, rows, wide, x, y, SCORE_STEPS, 1);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/* out += probs value, for the same keys. guarded: what is infinite or NaN comes to the rows of a
 * prob above 0 only. */
INLINED void weigh_values(float4 out[8][QUADS], float4 prob[8][QUADS], const tile_operands *from,
                          int row0, int count, int guarded, __local float4 *rows,
                          __local float4 *wide, int x, int y)
{
    __global const STORED(KEY_TYPE) *value = from->value + row0 * from->value_row;
    _Pragma("unroll 1") for (int c = 0; c < 8; c += SHARE)
    {
        share_tile(rows, prob, c, x, y);
        stage_value(wide, value, from->value_row, count, from->dims, c, guarded,
                    from->value_aligned);
        barrier(CLK_LOCAL_MEM_FENCE);
        multiply(out, rows, wide, x, y, VALUE_STEPS, 0);
        if (guarded)
            add_wild(out, rows, value, from->value_row, count, from->dims, c, x, y);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/* Scaled scores of one row in a slice of shared ones, from key n0 in steps: all rules. */
INLINED void rule(__local float *slice, const rules_row *row, int j0, int c0, int n0, int step)
{
    for (int n = n0; n < SLICE; n += step) {
        const int j = j0 + column_of(n % LANES, c0 + n / LANES);
        const float s = slice[n * ROW_PITCH * 4];
        slice[n * ROW_PITCH * 4] = j >= row->first && j < row->end
                                       ? rules_bias(row, rules_cap(row, s), j)
                                       : -INFINITY;
    }
}

/* All rules for the scores of keys from j0 on, of which those from `limit` on are excluded. Each
 * score's place is no constant, so they go by way of the slice; what a work-item lays down there it
 * takes back itself. The rounds are no loop: PoCL 3.1 cannot compile a barrier right before a
 * branch that was decided earlier, such as on a loop's c. */
INLINED void rule_tile(float4 score[8][QUADS], __local float4 *rows, __local const int *first,
                       __local const int *end, int b, int h, int i0, int num_rows, int j0,
                       int limit, int x, int y, RULES_PARAMETERS)
{
#define RULE_SHARE(c)                                                                              \
    if (c % SHARE == 0) {                                                                          \
        for (int i = item % ROWS; i < ROWS; i += GROUP) {                                          \
            rules_row row;                                                                         \
            RULES_OF(&row, b, h, i0 + min(i, num_rows - 1));                                       \
            row.first = first[i];                                                                  \
            row.end = min(end[i], limit);                                                          \
            rule((__local float *)rows + i, &row, j0, c, item / ROWS, (GROUP + ROWS - 1) / ROWS);  \
        }                                                                                          \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
        take_tile(score, rows, c, x, y);                                                           \
        share_tile(rows, score, c + SHARE, x, y);                                                  \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
    }
    const int item = y * LANES + x;
    share_tile(rows, score, 0, x, y);
    barrier(CLK_LOCAL_MEM_FENCE);
    EACH_COLUMN(RULE_SHARE)
}

/* Scores of keys from j0 on outside of the rows' ranges, or from `limit` on: excluded. */
INLINED void exclude(float4 score[8][QUADS], __local const int4 *first, __local const int4 *end,
                     int j0, int limit, int x)
{
#define EXCLUDE(c)                                                                                 \
    EACH_QUAD(r)                                                                                   \
    score[c][r] = select((float4)(-INFINITY), score[c][r],                                         \
                         column_of(0, c) >= from[r] && column_of(0, c) < to[r]);
    int4 from[QUADS], to[QUADS];
    EACH_QUAD(r)
    {
        from[r] = first[r * HIGH] - (j0 + 4 * x);
        to[r] = min(end[r * HIGH], (int4)(limit)) - (j0 + 4 * x);
    }
    EACH_COLUMN(EXCLUDE)
}

/* The largest of each row, or the sum over the work-items across; pool is [LANES][ROWS / 4]. A NaN
 * is no maximum: what becomes of its score brings it back. */
INLINED float4 row_top(__local const float4 *pool, float4 top)
{
    _Pragma("unroll 4") for (int x = 0; x < LANES; x++)
        top = fmax(top, pool[x * (ROWS / 4)]);
    return top;
}

INLINED float4 row_sum(__local const float4 *pool)
{
    float4 sum = (float4)(0.0f);
    _Pragma("unroll 4") for (int x = 0; x < LANES; x++)
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
 * own keys' only. Nobody reads pool any more, and nobody does in the end. */
INLINED void soften(float4 score[8][QUADS], float4 out[8][QUADS], float4 top[QUADS],
                    float4 sum[QUADS], __local float4 *pool, int x, int y)
{
#define FIND_MOST(c) EACH_QUAD(r) base[r] = fmax(base[r], score[c][r]);
#define SOFTEN(c)                                                                                  \
    EACH_QUAD(r)                                                                                   \
    {                                                                                              \
        out[c][r] *= keep[r];                                                                      \
        score[c][r] = exp2((score[c][r] - base[r]) * LOG2E);                                       \
        sum[r] += score[c][r];                                                                     \
    }
    float4 base[QUADS], keep[QUADS];
    EACH_QUAD(r) base[r] = score[0][r];
    EACH_COLUMN(FIND_MOST)
    EACH_QUAD(r) pool[x * (ROWS / 4) + r * HIGH + y] = base[r];
    barrier(CLK_LOCAL_MEM_FENCE);
    EACH_QUAD(r)
    {
        const float4 before = top[r];
        top[r] = row_top(pool + r * HIGH + y, before);
        base[r] = base_of(top[r]);
        keep[r] = exp2((before - base[r]) * LOG2E);
        sum[r] *= keep[r];
    }
    EACH_COLUMN(SOFTEN)
    barrier(CLK_LOCAL_MEM_FENCE);
}

#if USES_DROPOUT
/* A column of quad q, by the word of row n of each quad of rows. */
#define DROP(k, lane)                                                                              \
    score[4 * q + k][r] *= select((float4)(1.0f),                                                  \
                                  (float4)(dropout_keep(w.lane, dropout_threshold, dropout_scale)),\
                                  (int4)(0, 1, 2, 3) == n);

/* Scores of batch and head g, queries from i0 on and keys from j0 on, a multiple of 4. A loop over
 * rows, though it multiplies all four each time: the words of so many at once would not fit the
 * registers. */
INLINED void drop(float4 score[8][QUADS], int g, int i0, int j0, int x, int y, RULES_PARAMETERS)
{
    _Pragma("unroll 1") for (int n = 0; n < 4; n++)
        EACH_QUAD(r)
            UNROLL for (int q = 0; q < 2; q++) {
                const int i = i0 + 4 * y + r * 4 * HIGH + n;
                const uint4 w = dropout_words(g, i, j0 + column_of(x, 4 * q), dropout_low,
                                              dropout_high, dropout_offset);
                DROP(0, x)
                DROP(1, y)
                DROP(2, z)
                DROP(3, w)
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

/* Whether anything of the work-group's output is infinite or NaN. Nobody reads flag any more, and
 * nobody does in the end. */
INLINED int any_wild(float4 out[8][QUADS], __local int *flag, int item)
{
#define FIND_EXPONENT(c) EACH_QUAD(r) most = max(most, EXPONENTS(out[c][r]));
    int4 most = (int4)(0);
    EACH_COLUMN(FIND_EXPONENT)
    if (item == 0)
        *flag = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (max(max(most.x, most.y), max(most.z, most.w)) == WILD)
        atomic_or(flag, 1);
    barrier(CLK_LOCAL_MEM_FENCE);
    const int found = *flag;
    barrier(CLK_LOCAL_MEM_FENCE);
    return found;
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

/* Columns 4 q to 4 q + 3 of one row of a tile; lane: x for the first of quad r's rows ... */
#define ROW_OF(tile, q, r, lane)                                                                   \
    (float4)(tile[4 * (q)][r].lane, tile[4 * (q) + 1][r].lane, tile[4 * (q) + 2][r].lane,          \
             tile[4 * (q) + 3][r].lane)
/* The work-item's part of row 4 y + n of quad r. */
#define WRITE_ROW(n, lane)                                                                         \
    if (i + n < num_rows) {                                                                        \
        __global STORED(OUTPUT_TYPE) *row = to + (i + n) * output_row;                             \
        write_quad(row, ROW_OF(out, 0, r, lane) * scale_out.lane, 4 * x, dims);                    \
        write_quad(row, ROW_OF(out, 1, r, lane) * scale_out.lane, 4 * x + 4 * LANES, dims);        \
        if (lse && v0 == 0 && x == 0)                                                              \
            lse[lse_offset + b * lse_batch + h * lse_head                                          \
                + (span.query_row + i0 + i + n) * lse_row] = log_sum.lane;                         \
    }

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
    const int item = (int)get_local_id(0);
    const int x = item % LANES;
    const int y = item / LANES;
    const int across = (VALUE_DIM + WIDE - 1) / WIDE;
    const int v0 = (int)get_group_id(0) % across * WIDE;
    /* From the last queries to the first: with causal those have the most work, and what starts
     * last should be short. */
    const int i0 = ((query_len + ROWS - 1) / ROWS - 1 - (int)get_group_id(0) / across) * ROWS;
    const long number = (long)get_group_id(1) + (long)get_group_id(2) * (long)get_num_groups(1);
    const int g = (int)min(number, (long)batch * heads - 1);
    const int b = g / heads;
    const int h = g % heads;
    rules_span span;
    RULES_SPAN_OF(&span, b);
    const int num_rows = number == g ? clamp(span.queries - i0, 0, ROWS) : 0;
    const tile_operands from = {
        query + query_offset + b * query_batch + h * query_head + (span.query_row + i0) * query_row,
        key + key_offset + b * key_batch + h / group * key_head + span.key_row * key_row,
        value + value_offset + b * value_batch + h / group * value_head + span.key_row * value_row
            + v0,
        query_row, key_row, value_row,
        ALIGNED(query, query_offset, query_batch, query_head, query_row),
        ALIGNED(key, key_offset, key_batch, key_head, key_row),
        ALIGNED(value, value_offset, value_batch, value_head, value_row),
        num_rows, min(WIDE, VALUE_DIM - v0)
    };
    const float4 sink = (float4)(sinks ? sinks[sinks_offset + h] : -INFINITY);

    for (int i = item; i < ROWS; i += GROUP) {
        rules_row row;
        RULES_OF(&row, b, h, max(i0 + min(i, num_rows - 1), 0));
        ((__local int *)first)[i] = row.first;
        ((__local int *)end)[i] = num_rows ? max(row.end, 0) : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const int4 range = range_of(first, end);

    /* A ring's keys come to the end of its rows once at most: before key `turn`. Unsigned, since
     * that may be past the largest int. */
    const uint turn = USES_RING ? ((uint)range.x / key_len + 1) * key_len : 0;

    float4 out[8][QUADS], top[QUADS], sum[QUADS];
    /* What stands at an excluded key, of weight 0, must not reach the output, but 0 * NaN is NaN.
     * That is rare: all is done once more, guarded, where it shows in the end. */
    int passes = 1;
    for (int pass = 0; pass < passes; pass++) {
        clear_tile(out);
        EACH_QUAD(r)
        {
            top[r] = (float4)(-INFINITY);
            sum[r] = (float4)(0.0f);
        }
        int step = WIDE;
        for (int j0 = USES_DROPOUT ? range.x & ~3 : range.x; j0 < range.y; j0 += step) {
            const int turns = USES_RING && (uint)j0 < turn;
            const int row0 = USES_RING ? (int)(j0 - turn) + (turns ? key_len : 0) : j0;
            const int count = min(WIDE, (turns ? (int)min(turn, (uint)range.y) : range.y) - j0);
            if (USES_RING)
                step = count;
            float4 score[8][QUADS];
            score_keys(score, &from, row0, count, scale, rows, wide, x, y);
            if (USES_EACH) {
                rule_tile(score, rows, (__local int *)first, (__local int *)end, b, h, i0, num_rows,
                          j0, j0 + step, x, y, RULES_ARGUMENTS);
            } else if (j0 < range.z || j0 + WIDE > range.w || count < WIDE) {
                exclude(score, first + y, end + y, j0, j0 + step, x);
            }
            soften(score, out, top, sum, rows, x, y);
#if USES_DROPOUT
            drop(score, g, i0, j0, x, y, RULES_ARGUMENTS);
#endif
            weigh_values(out, score, &from, row0, count, pass, rows, wide, x, y);
        }
        if (!pass && any_wild(out, (__local int *)rows, item))
            passes = 2;
    }

    EACH_QUAD(r) rows[x * (ROWS / 4) + r * HIGH + y] = sum[r];
    /* The output may be the query: the last of this work-group's reads of it are over here. */
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    __global STORED(OUTPUT_TYPE) *to = output + output_offset + b * output_batch + h * output_head
                                       + (span.query_row + i0) * output_row + v0;
    const int dims = from.dims;
    EACH_QUAD(r)
    {
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
}
