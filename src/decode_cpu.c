/* The host of cl/decode_cpu.cl: a work-item for each part of the keys. */
#include "decode.h"
#include "grid.h"

enum {
    BLOCK = 128 /* keys between two looks at the maximum: with their values they stay in L2 */
};
#define OPTIONS "-DLANES=8 -DBLOCK=128 "

static size_t tile_of(const mha_attention_desc *desc, size_t rows)
{
    (void)desc;
    return rows < 3 ? rows : 4;
}

static size_t local_bytes(const mha_attention_desc *desc, size_t rows)
{
    const size_t tile = tile_of(desc, rows);
    const size_t padded = mha_grid_divide_up(rows, tile) * tile;
    return (padded * ((desc->head_dim + 7) / 8 * 8 + desc->value_dim) + tile * BLOCK) *
           sizeof(cl_float);
}

const mha_decode_kind mha_decode_cpu = {
    .room = "decode_cpu",
    .part = "decode_cpu_part",
    .merge = "decode_cpu_merge",
    .options = OPTIONS,
    .group = 1,
    .least_share = 128,
    .groups_per_unit = 4, /* so that a compute unit is busy while others end */
    .tile = tile_of,
    .local_bytes = local_bytes,
};
