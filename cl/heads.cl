/* The article's head transposes. Splitting [batch][len][heads * dim] to [batch][heads][len][dim] and
 * merging back are one copy between two views of strides.
 *
 * Work-item (d, r): one element of row r; an item goes on with r + size, over batch * heads * len.
 * Rows at or after the length of their batch are written as 0: what stands there, maybe NaN, must
 * not meet a probability of 0 in a matrix product.
 *
 * from, to [batch][heads][len][dim], strides in elements
 * lengths  [batch] or NULL */
__kernel void heads_copy(__global const float *from, ulong from_offset, ulong from_batch,
                         ulong from_head, ulong from_row, ulong from_column,
                         __global float *to, ulong to_offset, ulong to_batch, ulong to_head,
                         ulong to_row,
                         __global const int *lengths, ulong lengths_offset,
                         int batch, int heads, int len, int dim)
{
    const int d = (int)get_global_id(0);
    if (d >= dim)
        return;
    const ulong rows = (ulong)batch * heads * len;
    for (ulong r = get_global_id(1); r < rows; r += get_global_size(1)) {
        const int i = (int)(r % len);
        const ulong g = r / len;
        const ulong h = g % heads;
        const ulong b = g / heads;
        float x = 0.0f;
        if (!lengths || i < lengths[lengths_offset + b])
            x = from[from_offset + b * from_batch + h * from_head + i * from_row + d * from_column];
        to[to_offset + b * to_batch + h * to_head + i * to_row + d] = x;
    }
}
