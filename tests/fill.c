/* Seeded test data by Random123's Philox: whole numbers scaled by constants, so that no library's
 * log or cos has a say in the bits. */
#include "fill.h"

#include <Random123/philox.h>
#include <math.h>

/* The four random words of block `block`: the counter is the block, the key is the seed. */
static philox4x32_ctr_t random_block(uint64_t seed, uint64_t block)
{
    const philox4x32_ctr_t counter = { { (uint32_t)block, (uint32_t)(block >> 32), 0, 0 } };
    const philox4x32_key_t key = { { (uint32_t)seed, (uint32_t)(seed >> 32) } };
    return philox4x32(counter, key);
}

static uint32_t random_word(uint64_t seed, uint64_t index)
{
    return random_block(seed, index / 4).v[index % 4];
}

/* [0, 1) in steps of 2^-24, which a float holds exactly. */
static double random_unit(uint64_t seed, uint64_t index)
{
    return (random_word(seed, index) >> 8) * 0x1p-24;
}

/* Near normal: the sum of the block's eight half words, less its mean, over its deviation. */
static double random_normal(uint64_t seed, uint64_t index)
{
    const philox4x32_ctr_t block = random_block(seed, index);
    uint32_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (block.v[i] & 0xffff) + (block.v[i] >> 16);
    return (sum * 0x1p-16 - 4.0) / sqrt(8.0 / 12.0);
}

const char *fill_kind_name(fill_kind kind)
{
    static const char *const names[FILL_KINDS] = {
        [FILL_NORMAL] = "normal",   [FILL_UNIFORM] = "uniform", [FILL_LARGE] = "large",
        [FILL_EQUAL] = "all equal", [FILL_ONE_HOT] = "one hot", [FILL_TINY] = "tiny",
    };
    return (unsigned)kind < FILL_KINDS ? names[kind] : "unknown";
}

void fill_uniform(float *data, size_t count, uint64_t seed, float low, float high)
{
    for (size_t i = 0; i < count; i++)
        data[i] = (float)(low + ((double)high - low) * random_unit(seed, i));
}

static void fill_normal(float *data, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        data[i] = (float)random_normal(seed, i);
}

static void fill_equal(float *data, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        data[i] = (float)(2 * random_unit(seed, 0) - 1);
}

static void fill_one_hot(float *data, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        data[i] = random_word(seed, i / 16) % 16 == i % 16;
}

void fill_floats(float *data, size_t count, uint64_t seed, fill_kind kind)
{
    switch (kind) {
    case FILL_UNIFORM:
        fill_uniform(data, count, seed, -1, 1);
        break;
    case FILL_LARGE:
        fill_uniform(data, count, seed, -1e4f, 1e4f);
        break;
    case FILL_EQUAL:
        fill_equal(data, count, seed);
        break;
    case FILL_ONE_HOT:
        fill_one_hot(data, count, seed);
        break;
    case FILL_TINY:
        fill_uniform(data, count, seed, -1e-20f, 1e-20f);
        break;
    case FILL_NORMAL:
    default:
        fill_normal(data, count, seed);
    }
}

void fill_mask(unsigned char *data, size_t count, uint64_t seed, double probability)
{
    for (size_t i = 0; i < count; i++)
        data[i] = random_unit(seed, i) < probability;
}

void fill_lengths(int32_t *data, size_t count, uint64_t seed, int32_t max)
{
    for (size_t i = 0; i < count; i++)
        data[i] = (int32_t)(random_word(seed, i) * ((uint64_t)max + 1) >> 32);
}
