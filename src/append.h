/* The host of cl/append.cl: new keys and values join a cache, and queries are rotated beside them.
 */
#ifndef MHA_APPEND_H
#define MHA_APPEND_H

#include "bound.h"

typedef struct mha_append_stage {
    mha_kernel key, value;
    mha_kernel query;    /* with MHA_USES_ROTARY */
    size_t region_bytes; /* of the workspace: rotated queries */
} mha_append_stage;

/* desc uses MHA_USES_APPEND. */
mha_status mha_append_setup(mha_append_stage *append, mha_context *context,
                            const mha_attention_desc *desc);
void mha_append_release(mha_append_stage *append);
/* Writes bound's new keys and values into its key and value; where queries are rotated,
 * bound->query becomes the region of the workspace that holds them. */
mha_status mha_append_launch(const mha_append_stage *append, mha_run *run,
                             const mha_attention_desc *desc, mha_bound *bound, size_t region);

#endif
