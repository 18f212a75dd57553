/* Masked softmax: probs[i][j] = exp(s[i][j] - lse[i]) over the keys that query i may see, 0 at the
 * others, with s as rules.h makes it of the scores, and a sink's logit in the sum where there is one;
 * then dropout. A row that sees no key is all 0, its lse -inf.
 *
 * Build options: GROUP work-items a row, a power of two; SHOWS: 0, or 1 + the mha_scores_stage that
 * is written to shown; SHOWN_TYPE; those of rules.h.
 *
 * Work-group r: row r of batch * heads * query_len; a group goes on with r + number of groups.
 *
 * scores, probs [batch][heads][query_len][key_len], packed, may be one buffer
 * shown         the same shape, strides in elements, or NULL
 * lse           [batch][heads][query_len][1], strides in elements, or NULL */
#include "rules.h"
#include "dropout.h"
#include "group.h"

/* What the caller asked to see of a row's scores. Each work-item reads the keys that it will itself
 * overwrite later, where scores and probs are one buffer. */
static void show_scores(const rules_row *row, __global const float *scores,
                        __global STORED(SHOWN_TYPE) *shown, int key_len)
{
    for (int j = (int)get_local_id(0); j < key_len; j += GROUP) {
        float x = scores[j];
        if (SHOWS >= 2)
            x = rules_cap(row, x);
        if (SHOWS == 3)
            x = j >= row->first && j < row->end ? rules_bias(row, x, j) : -INFINITY;
        STORE(SHOWN_TYPE, x, shown, j);
    }
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void softmax_rows(__global const float *scores, ulong scores_offset,
                  __global float *probs, ulong probs_offset,
                  __global STORED(SHOWN_TYPE) *shown, ulong shown_offset, ulong shown_batch,
                  ulong shown_head, ulong shown_row,
                  __global float *lse, ulong lse_offset, ulong lse_batch, ulong lse_head,
                  ulong lse_row, int batch, int heads, RULES_GIVEN)
{
    RULES_TAKE
    __local float pool[GROUP];
    const int item = (int)get_local_id(0);
    const ulong rows = (ulong)batch * heads * query_len;

    for (ulong r = get_group_id(0); r < rows; r += get_num_groups(0)) {
        const int i = (int)(r % query_len);
        const int h = (int)(r / query_len % heads);
        const int b = (int)(r / query_len / heads);
        rules_row row;
        RULES_OF(&row, b, h, i);
        __global const float *s = scores + scores_offset + r * key_len;
        __global float *p = probs + probs_offset + r * key_len;
        if (SHOWS)
            show_scores(&row, s,
                        shown + shown_offset + b * shown_batch + h * shown_head + i * shown_row,
                        key_len);

        /* A work-item takes the keys that are its number modulo GROUP in all loops, so that it
         * reads nothing that another one wrote. */
        const int start = row.first + ((item - row.first) & (GROUP - 1));
        float top = -INFINITY;
        for (int j = start; j < row.end; j += GROUP) {
            const float x = rules_bias(&row, rules_cap(&row, s[j]), j);
            p[j] = x;
            top = fmax(top, x);
        }
        top = max_over_group(pool, top);
        const float sink = sinks ? sinks[sinks_offset + h] : -INFINITY;
        top = fmax(top, sink);

        float sum = 0.0f;
        for (int j = start; j < row.end; j += GROUP) {
            const float e = p[j] == -INFINITY ? 0.0f : exp(p[j] - top);
            p[j] = e;
            sum += e;
        }
        sum = sum_over_group(pool, sum);
        if (sink != -INFINITY)
            sum += exp(sink - top);

        const float scale = sum == 0.0f ? 0.0f : 1.0f / sum;
        for (int j = item; j < key_len; j += GROUP) {
            float x = j >= row.first && j < row.end ? p[j] * scale : 0.0f;
#if USES_DROPOUT
            uint words[4];
            vstore4(dropout_words(b * heads + h, i, j, dropout_low, dropout_high, dropout_offset), 0,
                    words);
            x *= dropout_keep(words[j & 3], dropout_threshold, dropout_scale);
#endif
            p[j] = x;
        }
        if (lse && item == 0)
            lse[lse_offset + b * lse_batch + h * lse_head + i * lse_row]
                = sum == 0.0f ? -INFINITY : top + log(sum);
    }
}
