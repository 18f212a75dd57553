/* Grids of the stages' kernels: how many work-groups, within what devices allow. */
#include "grid.h"

/* NVIDIA's limit of work-groups along the second axis; kernels go on with the rest in a loop,
 * or along the third axis. */
enum {
    MOST_GROUPS = 65535,
    TILE = 32,
    TILE_ITEMS = 8
};

static size_t at_most(size_t value, size_t most)
{
    return value < most ? value : most;
}

mha_grid mha_grid_tiles(size_t rows, size_t columns, size_t count)
{
    const size_t tiles = mha_grid_divide_up(rows, TILE) * mha_grid_divide_up(columns, TILE);
    return (mha_grid){ .dims = 2,
                       .global = { tiles * TILE_ITEMS, at_most(count, MOST_GROUPS) * TILE_ITEMS },
                       .local = { TILE_ITEMS, TILE_ITEMS } };
}

mha_grid mha_grid_rows(size_t columns, size_t rows, size_t group)
{
    /* One group's work-items, as wide as the row needs: short rows leave none idle beside them. */
    size_t wide = 1;
    while (wide < columns && wide * 2 <= group)
        wide *= 2;
    const size_t high = group / wide;
    return (mha_grid){ .dims = 2,
                       .global = { mha_grid_divide_up(columns, wide) * wide,
                                   at_most(mha_grid_divide_up(rows, high), MOST_GROUPS) * high },
                       .local = { wide, high } };
}

mha_grid mha_grid_parts(size_t parts, size_t group, size_t count)
{
    return (mha_grid){ .dims = 2,
                       .global = { parts * group, at_most(count, MOST_GROUPS) },
                       .local = { group, 1 } };
}

mha_grid mha_grid_all_parts(size_t parts, size_t group, size_t count)
{
    mha_grid grid = mha_grid_parts(parts, group, count);
    grid.dims = 3;
    grid.global[2] = mha_grid_divide_up(count, MOST_GROUPS);
    grid.local[2] = 1;
    return grid;
}

mha_grid mha_grid_groups(size_t rows, size_t group)
{
    return (mha_grid){ .dims = 1,
                       .global = { at_most(rows, MOST_GROUPS) * group },
                       .local = { group } };
}

size_t mha_grid_row_group(size_t device_most, size_t length)
{
    /* Enough for one element each, as many as a row of 4096 keeps busy at the most. */
    const size_t most = at_most(device_most, 256);
    size_t group = 1;
    while (group * 2 <= most && (group < length && (group < 64 || group * 16 <= length)))
        group *= 2;
    return group;
}
