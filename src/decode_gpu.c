/* The host of cl/decode_gpu.cl: a work-group for each part of the keys. */
#include "decode.h"
#include "grid.h"

/* As in cl/decode_gpu.cl. */
enum {
    GROUP = 64, /* also the keys of a block */
    SLICE = 32,
    MOST_TILE = 8,
    MOST_SUMS = 16 /* of a work-item's output, of which it has two in registers */
};

/* A power of 2. */
static size_t tile_of(const mha_attention_desc *desc, size_t rows)
{
    const size_t columns = mha_grid_divide_up(desc->value_dim, GROUP);
    size_t tile = 1;
    while (tile < rows && tile < MOST_TILE && 2 * tile * columns <= MOST_SUMS)
        tile *= 2;
    return tile;
}

/* Slices of keys and queries, the scores, a number of each work-item and what is known of a row;
 * or, when parts are merged, a row. */
static size_t local_bytes(const mha_attention_desc *desc, size_t rows)
{
    const size_t tile = tile_of(desc, rows);
    const size_t floats = GROUP * (SLICE + 4) + tile * SLICE + GROUP * tile + GROUP + 3 * tile;
    const size_t part = floats * sizeof(cl_float) + 2 * tile * sizeof(cl_ulong);
    const size_t merge = desc->value_dim * sizeof(cl_float);
    return part > merge ? part : merge;
}

const mha_decode_kind mha_decode_gpu = {
    .room = "decode_gpu",
    .part = "decode_gpu_part",
    .merge = "decode_gpu_merge",
    .options = "",
    .group = GROUP,
    .least_share = GROUP,
    .groups_per_unit = 8, /* so that some compute while others wait for memory */
    .one_each = true,
    .tile = tile_of,
    .local_bytes = local_bytes,
};
