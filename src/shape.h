/* What the shape decides: a description with its defaults resolved and its rules checked, and sizes
 * that cannot overflow unseen. */
#ifndef MHA_SHAPE_H
#define MHA_SHAPE_H

#include "context.h"

#include <limits.h>

/* Kernels count along one axis in int, round up to tiles, and step on by up to 65535 groups. */
#define MHA_MOST_AXIS ((size_t)INT_MAX - (1 << 17))

/* Exclusions that differ from query to query: a key that one query may see and another may not. */
#define MHA_EXCLUDES_BY_QUERY                                                           \
    (MHA_USES_KEY_LENGTHS_PER_QUERY | MHA_USES_BIAS | MHA_USES_MASK | MHA_USES_CAUSAL | \
     MHA_USES_WINDOW_LEFT | MHA_USES_WINDOW_RIGHT)

#define MHA_USES_OFFSETS (MHA_USES_QUERY_OFFSETS | MHA_USES_KEY_OFFSETS)
/* What a softmax does not have: caches, rotary positions and offsets. */
#define MHA_USES_OF_ATTENTION_ONLY \
    (MHA_USES_APPEND | MHA_USES_RING | MHA_USES_ROTARY | MHA_USES_OFFSETS)

/* Writes desc to *out with every 0 that stands for a default replaced, or says which rule it
 * breaks. After it, every axis fits an int and every tensor's bytes fit a size_t. `who`: see
 * mha_run_begin. */
mha_status mha_shape_resolve(mha_context *context, const mha_attention_desc *desc, const char *who,
                             mha_attention_desc *out);
/* Whether a ring of key_len rows holds all that these queries may see. */
bool mha_shape_fits_ring(const mha_attention_desc *desc, size_t query_len, size_t key_len);

/* A product of sizes. Starts at 1; once it overflows it stays too large. */
typedef struct mha_size {
    size_t value;
    bool overflows;
} mha_size;

mha_size mha_size_of(const size_t *factors, size_t count);

/* Whether a tensor of `shape` has no element. */
bool mha_shape_is_empty(const size_t shape[4]);
/* The shape of a bias or mask for these scores: its broadcast axes have length 1, or 0 like theirs.
 */
void mha_shape_narrow(size_t out[4], const size_t scores[4], unsigned broadcast);

/* The elements from the first to past the last that a tensor of `shape` touches, 0 if it is empty.
 * All strides 0: packed. The stride of an axis of length 1 does not count. */
mha_size mha_shape_reach(const size_t shape[4], const size_t strides[4]);

/* The rules of rows [rows][width] that parts take, and of a resolved type. */
mha_status mha_shape_check_rows(const mha_log *log, const char *who, size_t rows, size_t width);
mha_status mha_shape_check_type(const mha_log *log, const char *who, const char *name,
                                mha_type type);

/* MHA_TOO_LARGE, said, where the device gives no buffer as large as a workspace must be. */
mha_status mha_shape_check_workspace(const mha_context *context, size_t bytes, const char *who);

/* Appends a region of bytes to a layout, aligned; returns its offset. *end grows to SIZE_MAX where
 * it would overflow and stays there. */
size_t mha_layout_add(size_t *end, size_t bytes);
/* Regions start at multiples of this many bytes: the widest vector a kernel loads, and a bit more.
 */
#define MHA_LAYOUT_ALIGNMENT 256

#endif
