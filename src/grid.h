/* Grids of the stages' kernels: how many work-groups, within what devices allow. */
#ifndef MHA_GRID_H
#define MHA_GRID_H

#include "kernel.h"

/* How many parts cover a size. */
static inline size_t mha_grid_divide_up(size_t size, size_t part)
{
    return (size + part - 1) / part;
}

/* For the kernels of cl/tile.h: work-groups of 8 x 8 over 32 x 32 tiles of a rows x columns matrix,
 * for each of count matrices. */
mha_grid mha_grid_tiles(size_t rows, size_t columns, size_t count);

/* For kernels of one work-item an element: columns along the first axis, rows along the second.
 * group: the kernel's free_group. */
mha_grid mha_grid_rows(size_t columns, size_t rows, size_t group);

/* For kernels of one work-group of `group` work-items for each part of each of count matrices. */
mha_grid mha_grid_parts(size_t parts, size_t group, size_t count);

/* The same for a kernel without a loop over the counts, which would keep its arguments in
 * registers: those past the limit of the second axis go along the third, whose last groups may have
 * none. */
mha_grid mha_grid_all_parts(size_t parts, size_t group, size_t count);

/* For kernels of one work-group of `group` work-items a row. */
mha_grid mha_grid_groups(size_t rows, size_t group);
/* How many work-items such a group has for rows of `length`, of the most that the device takes: a
 * power of two. */
size_t mha_grid_row_group(size_t device_most, size_t length);

#endif
