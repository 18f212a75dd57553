/* Shows what cl/dropout.h and the Philox below it compute, for tests/test_dropout.c. Buffers lie
 * between guards: element 0 is at the offset. */
#define USES_DROPOUT 1
#include "dropout.h"

/* A work-item is a counter and a key of Philox: in [n][6] -> out [n][4]. */
kernel void dropout_probe_philox(global const uint *in, ulong in_offset, global uint *out,
                                 ulong out_offset)
{
    const size_t n = get_global_id(0);
    in += in_offset + n * 6;
    const philox4x32_ctr_t counter = { { in[0], in[1], in[2], in[3] } };
    const philox4x32_key_t key = { { in[4], in[5] } };
    const philox4x32_ctr_t words = philox4x32_R(10, counter, key);
    for (int w = 0; w < 4; w++)
        out[out_offset + n * 4 + w] = words.v[w];
}

/* A work-item is one { g, i, j, seed_low, seed_high, offset }: in [n][6] -> out [n][4]. */
kernel void dropout_probe_words(global const uint *in, ulong in_offset, global uint *out,
                                ulong out_offset)
{
    const size_t n = get_global_id(0);
    in += in_offset + n * 6;
    vstore4(dropout_words((int)in[0], (int)in[1], (int)in[2], in[3], in[4], in[5]), n,
            out + out_offset);
}

/* A work-item is a key j of a query i of a head g: out [g][i][j]. */
kernel void dropout_probe_keep(uint threshold, float scale, uint seed_low, uint seed_high,
                               uint offset, global float *out, ulong out_offset)
{
    const int j = (int)get_global_id(0), i = (int)get_global_id(1), g = (int)get_global_id(2);
    const size_t row = (size_t)g * get_global_size(1) + i;
    uint words[4];
    vstore4(dropout_words(g, i, j, seed_low, seed_high, offset), 0, words);
    out[out_offset + row * get_global_size(0) + j] = dropout_keep(words[j % 4], threshold, scale);
}
