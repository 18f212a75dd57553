/* Masked softmax: probs[i][j] = exp(s[i][j] - lse[i]) over the keys that query i may see, 0 at the
 * others, with s = softcap(scores) + bias. A row that sees no key is all 0, its lse -inf.
 *
 * Build options: GROUP work-items a row, a power of two; USES_BIAS, USES_MASK, USES_SOFTCAP,
 * USES_CAUSAL, USES_WINDOW_LEFT, USES_WINDOW_RIGHT, BOTTOM_RIGHT, each 0 or 1.
 *
 * Work-group r: row r of batch * heads * query_len; a group goes on with r + number of groups.
 *
 * scores, probs [batch][heads][query_len][key_len], packed, may be one buffer
 * lse           [batch][heads][query_len][1], strides in elements, or NULL
 * bias, mask    [batch][heads][query_len][key_len], strides in elements, 0 where broadcast
 * key_lengths   [batch] or NULL, per_query [batch][query_len] or NULL: clamped to 0..key_len */

/* The sum (or maximum) of x over the work-group, in every work-item. The order is fixed, so two runs
 * give the same bits. */
static float sum_over_group(__local float *pool, float x)
{
    const int item = (int)get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    pool[item] = x;
    for (int step = GROUP / 2; step > 0; step /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < step)
            pool[item] += pool[item + step];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return pool[0];
}

static float max_over_group(__local float *pool, float x)
{
    const int item = (int)get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    pool[item] = x;
    for (int step = GROUP / 2; step > 0; step /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < step)
            pool[item] = fmax(pool[item], pool[item + step]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return pool[0];
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void softmax_rows(__global const float *scores, ulong scores_offset,
                  __global float *probs, ulong probs_offset,
                  __global float *lse, ulong lse_offset, ulong lse_batch, ulong lse_head,
                  ulong lse_row,
                  __global const float *bias, ulong bias_offset, ulong bias_batch,
                  ulong bias_head, ulong bias_row, ulong bias_column,
                  __global const uchar *mask, ulong mask_offset, ulong mask_batch,
                  ulong mask_head, ulong mask_row, ulong mask_column,
                  __global const int *key_lengths, ulong key_lengths_offset,
                  __global const int *per_query, ulong per_query_offset,
                  int batch, int heads, int query_len, int key_len,
                  int window_left, int window_right, float softcap)
{
    __local float pool[GROUP];
    const int item = (int)get_local_id(0);
    const ulong rows = (ulong)batch * heads * query_len;

    for (ulong r = get_group_id(0); r < rows; r += get_num_groups(0)) {
        const int i = (int)(r % query_len);
        const ulong h = r / query_len % heads;
        const ulong b = r / query_len / heads;

        /* All rules but bias and mask leave a range of keys, first <= j < end. */
        const int length = key_lengths ? clamp(key_lengths[key_lengths_offset + b], 0, key_len)
                                       : key_len;
        int first = 0;
        int end = length;
        if (per_query)
            end = min(end, per_query[per_query_offset + b * query_len + i]);
        const int diagonal = BOTTOM_RIGHT ? i + length - query_len : i;
        if (USES_CAUSAL)
            end = min(end, diagonal + 1);
        if (USES_WINDOW_RIGHT)
            end = (int)min((long)end, (long)diagonal + window_right + 1);
        if (USES_WINDOW_LEFT)
            first = (int)max(0L, (long)diagonal - window_left);

        __global const float *s = scores + scores_offset + r * key_len;
        __global float *p = probs + probs_offset + r * key_len;
        /* A work-item takes the keys that are its number modulo GROUP in all three loops, so that it
         * reads nothing that another one wrote. */
        const int start = first + ((item - first) & (GROUP - 1));
        float top = -INFINITY;
        for (int j = start; j < end; j += GROUP) {
            float x = s[j];
            if (USES_SOFTCAP)
                x = softcap * tanh(x / softcap);
            if (USES_BIAS) {
                const float add = bias[bias_offset + b * bias_batch + h * bias_head
                                       + i * bias_row + j * bias_column];
                /* -inf excludes whatever the score is, NaN as well. */
                x = add == -INFINITY ? -INFINITY : x + add;
            }
            if (USES_MASK)
                x = mask[mask_offset + b * mask_batch + h * mask_head + i * mask_row
                         + j * mask_column] ? x : -INFINITY;
            p[j] = x;
            top = fmax(top, x);
        }
        top = max_over_group(pool, top);

        float sum = 0.0f;
        for (int j = start; j < end; j += GROUP) {
            const float e = p[j] == -INFINITY ? 0.0f : exp(p[j] - top);
            p[j] = e;
            sum += e;
        }
        sum = sum_over_group(pool, sum);

        const float scale = sum == 0.0f ? 0.0f : 1.0f / sum;
        for (int j = item; j < key_len; j += GROUP)
            p[j] = j >= first && j < end ? p[j] * scale : 0.0f;
        if (lse && item == 0)
            lse[lse_offset + b * lse_batch + h * lse_head + i * lse_row]
                = sum == 0.0f ? -INFINITY : top + log(sum);
    }
}
