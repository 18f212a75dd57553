/* The host of cl/add.cl: sums of rows. */
#ifndef MHA_ADD_H
#define MHA_ADD_H

#include "bind.h"

typedef struct mha_add_stage {
    mha_kernel rows;
    size_t lanes; /* elements a work-item */
} mha_add_stage;

mha_status mha_add_setup(mha_add_stage *add, mha_context *context, mha_tiling tiling,
                         mha_type to_type);
void mha_add_release(mha_add_stage *add);
/* to = a + b, [1][1][rows][width] each, a and b float32; a float32 `to` may be exactly one of them.
 */
mha_status mha_add_launch(const mha_add_stage *add, mha_run *run, size_t rows, size_t width,
                          const mha_view *a, const mha_view *b, const mha_view *to);

#endif
