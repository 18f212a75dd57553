/* Which keys a query may see, and what becomes of its scores before the softmax: the one place
 * where lengths, diagonals, windows, softcap, bias, ALiBi and mask have their meaning on the
 * device.
 *
 * Build options, each 0 or 1: USES_BIAS, USES_MASK, USES_SOFTCAP, USES_ALIBI, USES_CAUSAL,
 * USES_WINDOW_LEFT, USES_WINDOW_RIGHT, USES_RING, USES_DROPOUT; DIAGONAL, 1 from the top left, 2 to
 * the bottom right, 3 after the keys of before length_more, as mha_diagonal; and BIAS_TYPE, see
 * types.h.
 *
 * bias, mask  [batch][heads][query_len][key_len], strides in elements, 0 where broadcast
 * key_lengths, key_starts  [batch] or NULL; per_query [batch][query_len] or NULL. A batch has
 *             key_lengths[batch] + length_more keys
 * query_offsets, key_offsets  [batch + 1] or NULL: where a batch's rows lie among query_total or
 *             key_total; else it has rows 0 to before query_len or key_len
 * slopes      [batch][heads] with a stride of batches that may be 0, or NULL
 * sinks       [heads] or NULL
 *
 * A ring (USES_RING) has key_len rows, and key j in row j % key_len: a batch's keys are counted on
 * without end, and the last key_len of them are there. */
#include "types.h"

/* Rules that look at one score at a time. */
#define USES_EACH (USES_BIAS || USES_MASK || USES_SOFTCAP || USES_ALIBI)

/* What is all for this file; mha_rules_args of src/rules.c lists it. */
#define RULES_PARAMETERS                                                                           \
    __global const STORED(BIAS_TYPE) *bias, ulong bias_offset, ulong bias_batch, ulong bias_head,  \
        ulong bias_row, ulong bias_column, __global const uchar *mask, ulong mask_offset,          \
        ulong mask_batch, ulong mask_head, ulong mask_row, ulong mask_column,                      \
        __global const int *key_lengths, ulong key_lengths_offset, int length_more,                \
        __global const int *key_starts, ulong key_starts_offset, __global const int *per_query,    \
        ulong per_query_offset, __global const float *slopes, ulong slopes_offset,                 \
        ulong slopes_batch, __global const float *sinks, ulong sinks_offset,                       \
        __global const int *query_offsets, ulong query_offsets_offset,                             \
        __global const int *key_offsets, ulong key_offsets_offset, int query_total, int key_total, \
        int query_len, int key_len, int window_left, int window_right, float softcap,              \
        uint dropout_threshold, float dropout_scale, uint dropout_low, uint dropout_high,          \
        uint dropout_offset
#define RULES_ARGUMENTS                                                                            \
    bias, bias_offset, bias_batch, bias_head, bias_row, bias_column, mask, mask_offset,            \
        mask_batch, mask_head, mask_row, mask_column, key_lengths, key_lengths_offset,             \
        length_more, key_starts, key_starts_offset, per_query, per_query_offset, slopes,           \
        slopes_offset, slopes_batch, sinks, sinks_offset, query_offsets, query_offsets_offset,     \
        key_offsets, key_offsets_offset, query_total, key_total, query_len, key_len, window_left,  \
        window_right, softcap, dropout_threshold, dropout_scale, dropout_low, dropout_high,        \
        dropout_offset

/* Offsets and strides together. GIVEN_AS_STRUCTS, before this file is included, makes structs of
 * these, the same bytes, for a kernel that needs all registers of a GPU: Intel's compiler copies a
 * whole vector of 64-bit numbers for each of them that is taken out. */
#ifdef GIVEN_AS_STRUCTS
typedef struct ulongs4 {
    ulong s0, s1, s2, s3;
} ulongs4;
typedef struct ulongs8 {
    ulong s0, s1, s2, s3, s4, s5, s6, s7;
} ulongs8;
typedef struct ulongs16 {
    ulong s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, sa, sb, sc, sd, se, sf;
} ulongs16;
#define NO_ULONGS8 { 0, 0, 0, 0, 0, 0, 0, 0 }
#else
#define NO_ULONGS8 (ulong8)(0)
typedef ulong4 ulongs4;
typedef ulong8 ulongs8;
typedef ulong16 ulongs16;
#endif

/* The same as a kernel is given them, and as a kernel's first line takes them apart. Each argument
 * costs a launch 60 ns or more on PoCL: so numbers come together, and what no rule of the build
 * reads does not come at all. */
#if USES_BIAS
#define RULES_GIVEN_BIAS , __global const STORED(BIAS_TYPE) *bias, ulongs8 bias_at
#define RULES_TAKE_BIAS
#else
#define RULES_GIVEN_BIAS
#define RULES_TAKE_BIAS                                                                            \
    __global const STORED(BIAS_TYPE) *const bias = 0;                                              \
    const ulongs8 bias_at = NO_ULONGS8;
#endif
#if USES_MASK
#define RULES_GIVEN_MASK , __global const uchar *mask, ulongs8 mask_at
#define RULES_TAKE_MASK
#else
#define RULES_GIVEN_MASK
#define RULES_TAKE_MASK                                                                            \
    __global const uchar *const mask = 0;                                                          \
    const ulongs8 mask_at = NO_ULONGS8;
#endif
#if USES_ALIBI
#define RULES_GIVEN_SLOPES , __global const float *slopes
#define RULES_TAKE_SLOPES
#else
#define RULES_GIVEN_SLOPES
#define RULES_TAKE_SLOPES __global const float *const slopes = 0;
#endif
#if USES_DROPOUT
#define RULES_GIVEN_DROPOUT , uint4 dropout
#define RULES_TAKE_DROPOUT
#else
#define RULES_GIVEN_DROPOUT
#define RULES_TAKE_DROPOUT const uint4 dropout = (uint4)(0);
#endif

#define RULES_GIVEN                                                                                \
    __global const int *key_lengths, __global const int *key_starts,                               \
        __global const int *per_query, __global const float *sinks,                                \
        __global const int *query_offsets, __global const int *key_offsets, ulongs8 lists_at,      \
        int8 lengths, float2 factors RULES_GIVEN_BIAS RULES_GIVEN_MASK RULES_GIVEN_SLOPES          \
            RULES_GIVEN_DROPOUT
#define RULES_TAKE                                                                                 \
    RULES_TAKE_BIAS RULES_TAKE_MASK RULES_TAKE_SLOPES RULES_TAKE_DROPOUT                           \
    const ulong bias_offset = bias_at.s0, bias_batch = bias_at.s1, bias_head = bias_at.s2,         \
                bias_row = bias_at.s3, bias_column = bias_at.s4, mask_offset = mask_at.s0,         \
                mask_batch = mask_at.s1, mask_head = mask_at.s2, mask_row = mask_at.s3,            \
                mask_column = mask_at.s4, key_lengths_offset = lists_at.s0,                        \
                key_starts_offset = lists_at.s1, per_query_offset = lists_at.s2,                   \
                slopes_offset = lists_at.s3, slopes_batch = lists_at.s4,                           \
                sinks_offset = lists_at.s5, query_offsets_offset = lists_at.s6,                    \
                key_offsets_offset = lists_at.s7;                                                  \
    const int length_more = lengths.s0, query_total = lengths.s1, key_total = lengths.s2,          \
              query_len = lengths.s3, key_len = lengths.s4, window_left = lengths.s5,              \
              window_right = lengths.s6;                                                           \
    const float softcap = factors.s0, dropout_scale = factors.s1;                                  \
    const uint dropout_threshold = dropout.s0, dropout_low = dropout.s1,                           \
               dropout_high = dropout.s2, dropout_offset = dropout.s3;

/* Where the rows of one batch lie, and how many keys it has. */
typedef struct rules_span {
    int query_row, queries; /* the first row of query and output, and how many */
    int key_row, rows;      /* the first row of key and value, and how many may be read from it on */
    int length;             /* keys; no more than rows, but in a ring */
} rules_span;

/* To a pointer, as rules_of, not returned: oclgrind cannot do what inlining makes of a struct that
 * is returned. */
static void rules_span_of(rules_span *to, int b, RULES_PARAMETERS)
{
    rules_span span = { 0, query_len, 0, key_len, key_len };
    if (query_offsets) {
        __global const int *at = query_offsets + query_offsets_offset + b;
        span.query_row = clamp(at[0], 0, query_total);
        span.queries = min(clamp(at[1], span.query_row, query_total) - span.query_row, query_len);
    }
    if (key_offsets) {
        __global const int *at = key_offsets + key_offsets_offset + b;
        span.key_row = clamp(at[0], 0, key_total);
        span.rows = min(clamp(at[1], span.key_row, key_total) - span.key_row, key_len);
        span.length = span.rows;
    }
    if (key_lengths) {
        const long length = (long)key_lengths[key_lengths_offset + b] + length_more;
        /* A ring's count is kept away from the largest int, since kernels step past it. */
        span.length = (int)clamp(length, 0L, USES_RING ? 0x7ffdffffL : (long)span.rows);
    }
    *to = span;
}
#define RULES_SPAN_OF(to, b) rules_span_of(to, b, RULES_ARGUMENTS)

/* What the rules say of one query of one batch and head. */
typedef struct rules_row {
    int first, end; /* keys outside first <= j < end are excluded */
    int diagonal;
    float slope;
    __global const STORED(BIAS_TYPE) *bias; /* of this row */
    __global const uchar *mask;
    ulong bias_column, mask_column;
    float softcap;
} rules_row;

static void rules_of(rules_row *to, int b, int h, int i, RULES_PARAMETERS)
{
    rules_row row;
    rules_span span;
    RULES_SPAN_OF(&span, b);
    row.first = key_starts ? clamp(key_starts[key_starts_offset + b], 0, span.rows) : 0;
    if (USES_RING)
        row.first = max(0, span.length - key_len);
    row.end = span.length;
    if (per_query)
        row.end = min(row.end, per_query[per_query_offset + (ulong)b * query_len + i]);
    row.diagonal = i;
    if (DIAGONAL == 2)
        row.diagonal += span.length - span.queries;
    if (DIAGONAL == 3)
        row.diagonal += clamp(key_lengths[key_lengths_offset + b], 0, key_len);
    /* In long: a window may be as wide as an int, to say no limit. */
    if (USES_CAUSAL)
        row.end = min(row.end, row.diagonal + 1);
    if (USES_WINDOW_RIGHT)
        row.end = (int)min((long)row.end, (long)row.diagonal + window_right + 1);
    if (USES_WINDOW_LEFT)
        row.first = (int)max((long)row.first, (long)row.diagonal - window_left);
    row.slope = USES_ALIBI ? slopes[slopes_offset + b * slopes_batch + h] : 0.0f;
    row.bias = bias + bias_offset + b * bias_batch + h * bias_head + i * bias_row;
    row.mask = mask + mask_offset + b * mask_batch + h * mask_head + i * mask_row;
    row.bias_column = bias_column;
    row.mask_column = mask_column;
    row.softcap = softcap;
    *to = row;
}
#define RULES_OF(to, b, h, i) rules_of(to, b, h, i, RULES_ARGUMENTS)

static float rules_cap(const rules_row *row, float score)
{
    return USES_SOFTCAP ? row->softcap * tanh(score / row->softcap) : score;
}

/* A capped score of key j, first <= j < end, after bias, ALiBi and mask: -INFINITY is excluded. */
static float rules_bias(const rules_row *row, float score, int j)
{
    if (USES_BIAS) {
        const float add = LOAD(BIAS_TYPE, row->bias, j * row->bias_column);
        /* -inf excludes whatever the score is, NaN as well. */
        score = add == -INFINITY ? -INFINITY : score + add;
    }
    if (USES_ALIBI)
        score -= row->slope * (float)abs(row->diagonal - j);
    if (USES_MASK)
        score = row->mask[j * row->mask_column] ? score : -INFINITY;
    return score;
}
