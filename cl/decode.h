/* What the decode kernels share: where the parts are, and how they are merged.
 *
 * Build options: ROWS, the most query rows of a key head (heads / kv_heads * queries); GROUP, the
 * work-items of a work-group; those of attend.h.
 *
 * parts [batch][kv_heads][number of parts][ROWS][VALUE_DIM + 2]: a row's output, not yet divided by
 * its sum, its maximum and its sum */
#include "attend.h"

#define PART_PITCH (VALUE_DIM + 2)
/* A constant where there is but one, so that loops over a row become vectors. */
#define ITEM (GROUP == 1 ? 0 : (int)get_local_id(0))

/* From the parts' first element to row r of part c of batch and key head g. */
static ulong decode_part_at(int g, int num_parts, int c, int r)
{
    return (((ulong)g * num_parts + c) * ROWS + r) * PART_PITCH;
}

/* Part c of the keys from `least` to before `most`: those from *from to before *to. The parts share
 * evenly what the rows see at all, so a window or a short sequence in a long cache keeps all of
 * them busy. */
static void decode_share(int *from, int *to, int least, int most, int c, int num_parts)
{
    const int share = max(most - least, 0) / num_parts + 1;
    *from = (int)min((long)least + (long)c * share, (long)most);
    *to = (int)min((long)*from + share, (long)most);
}

/* A row of the output, and its lse, from what all its keys make: sum and output, not yet divided,
 * at the maximum top. A sink joins the sum. A work-item writes what it has of the row. */
static void decode_finish(__local const float *from, float top, float sum, int b, int h, int row,
                          ATTEND_PARAMETERS)
{
    float log_sum;
    const float scale_by
        = attend_divide(&log_sum, top, sum, sinks ? sinks[sinks_offset + h] : -INFINITY);
    __global STORED(OUTPUT_TYPE) *to = output + output_offset + b * output_batch + h * output_head
                                       + row * output_row;
    for (int d = ITEM; d < VALUE_DIM; d += GROUP)
        STORE(OUTPUT_TYPE, from[d] * scale_by, to, d);
    if (lse && ITEM == 0)
        lse[lse_offset + b * lse_batch + h * lse_head + row * lse_row] = log_sum;
}

#if MERGES
/* Rows of the output from their parts: work-group (r, g) makes row r of batch and key head g. A
 * work-item has every GROUP-th element of out, which is [VALUE_DIM], to itself. */
static void decode_merge(__local float *out, __global const float *parts, int num_parts,
                         ATTEND_PARAMETERS)
{
    const int kv_heads = heads / group;
    const int r = (int)get_group_id(0);

    for (int g = (int)get_group_id(1); g < batch * kv_heads; g += (int)get_num_groups(1)) {
        const int b = g / kv_heads;
        rules_span span;
        RULES_SPAN_OF(&span, b);
        if (r >= group * span.queries)
            continue;
        __global const float *first = parts + decode_part_at(g, num_parts, 0, r);
        const ulong stride = (ulong)ROWS * PART_PITCH;
        float top = -INFINITY;
        for (int c = 0; c < num_parts; c++)
            top = fmax(top, first[c * stride + VALUE_DIM]);
        const float base = top == -INFINITY ? 0.0f : top;
        float sum = 0.0f;
        for (int d = ITEM; d < VALUE_DIM; d += GROUP)
            out[d] = 0.0f;
        for (int c = 0; c < num_parts; c++) {
            __global const float *part = first + c * stride;
            const float keep = exp(part[VALUE_DIM] - base);
            if (keep == 0.0f && !isnan(part[VALUE_DIM + 1]))
                continue;
            sum += keep * part[VALUE_DIM + 1];
            for (int d = ITEM; d < VALUE_DIM; d += GROUP)
                out[d] += keep * part[d];
        }
        decode_finish(out, top, sum, b, g % kv_heads * group + r / span.queries,
                      span.query_row + r % span.queries, ATTEND_ARGUMENTS);
    }
}
#endif
