/* Which probs dropout keeps: a random choice that depends on (batch, head, query, key) and on the
 * caller's seed and offset only, so that it is the same on every device, path and tiling, and again in
 * a backward pass.
 *
 * The random words are those of Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1,
 * 2, 3", 2011. Anyone can make them again:
 *
 *     counter    { key / 4, query, batch * heads + head, offset }
 *     its key    { seed_low, seed_high }
 *
 * All four indices count from 0, heads is the number of query heads, and the 64-bit seed is
 * seed_high * 2^32 + seed_low. Of the four words of a counter, word key % 4 belongs to the key. A prob
 * is kept, and multiplied by the scale, where its word >= threshold; elsewhere it becomes 0. To drop
 * with probability p, 0 <= p < 1: threshold = p * 2^32 rounded to nearest, scale = 1 / (1 - p).
 *
 * Random123, which computes them, is Copyright 2010-2011, D. E. Shaw Research; its licence is
 * LICENSE.Random123. */
#if USES_DROPOUT
#include "philox.h"

/* The words of the keys j / 4 * 4 .. + 3, in their order. g: batch * heads + head; i: the query; j: any
 * of the four keys. */
static uint4 dropout_words(int g, int i, int j, uint seed_low, uint seed_high, uint offset)
{
    const philox4x32_ctr_t counter = { { (uint)j / 4, (uint)i, (uint)g, offset } };
    const philox4x32_key_t key = { { seed_low, seed_high } };
    const philox4x32_ctr_t words = philox4x32_R(10, counter, key);
    return (uint4)(words.v[0], words.v[1], words.v[2], words.v[3]);
}

/* What a prob is multiplied by. */
static float dropout_keep(uint word, uint threshold, float scale)
{
    return word >= threshold ? scale : 0.0f;
}
#endif
