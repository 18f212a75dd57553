/* All arguments of an attention's call, as its stages read them. */
#ifndef MHA_BOUND_H
#define MHA_BOUND_H

#include "bind.h"

/* All that an attention reads and writes in one call. */
typedef struct mha_bound {
    bool appends; /* key and value are a cache, which is written */
    size_t query_len, key_len, new_len;
    size_t query_total, key_total; /* rows of query and key where the batches lie end to end */
    mha_view query, key, value, output, bias, mask, probs, scores, lse, slopes, sinks;
    mha_view new_key, new_value, rotary_cos, rotary_sin;
    mha_bound_lengths key_lengths, per_query, key_starts;
    mha_bound_lengths positions, query_offsets, key_offsets;
    uint64_t dropout_seed;
    uint32_t dropout_offset;
} mha_bound;

/* How many keys a batch has: lengths[batch] + more; buffer NULL: all. */
typedef struct mha_key_counts {
    cl_mem buffer;
    size_t offset; /* elements */
    size_t more;
} mha_key_counts;
mha_key_counts mha_bound_key_counts(const mha_attention_desc *desc, const mha_bound *bound);

/* The lengths of the call, at most the desc's. */
mha_status mha_bound_take_lengths(const mha_run *run, mha_bound *out, const char *who,
                                  const mha_attention_desc *desc, const mha_attention_args *args);
/* Offsets and totals, which the shapes of query, key, value and output follow from. */
mha_status mha_bound_take_offsets(const mha_run *run, mha_bound *out, const char *who,
                                  const mha_attention_desc *desc, const mha_attention_args *args);
/* All but query, key, value, output and the new keys and values, each there exactly where its bit
 * of desc->uses says so. */
mha_status mha_bound_take_options(const mha_run *run, mha_bound *out, const char *who,
                                  const mha_attention_desc *desc, const mha_attention_args *args);

/* New keys and values of a cache, and keys and values or the cache itself, in the shapes of the
 * header. */
mha_status mha_bound_take_new(const mha_run *run, mha_bound *out, const char *who,
                              const mha_attention_desc *desc, const mha_attention_args *args);
mha_status mha_bound_take_keys(const mha_run *run, mha_bound *out, const char *who,
                               const mha_attention_desc *desc, const mha_attention_args *args);

/* Space that host lengths need in a workspace, and where the arrays lie in it. */
size_t mha_bound_upload_bytes(const mha_attention_desc *desc);
/* Queues the copies of host lengths into the workspace at region_bytes. */
mha_status mha_bound_upload(mha_run *run, mha_bound *bound, const mha_attention_desc *desc,
                            size_t region_bytes);

enum {
    MHA_BOUND_ARRAYS = 6,
    MHA_BOUND_VIEWS = 21
};
/* All that a call reads and writes, as mha_bind_apart takes it. */
typedef struct mha_bound_list {
    mha_view arrays[MHA_BOUND_ARRAYS]; /* of lengths and the like */
    const mha_view *views[MHA_BOUND_VIEWS];
    const char *names[MHA_BOUND_VIEWS];
    mha_access accesses[MHA_BOUND_VIEWS];
} mha_bound_list;
/* Valid as long as `bound` and the list are. query_name is what bound->query is called. */
void mha_bound_list_views(const mha_bound *bound, const char *query_name, mha_bound_list *out);
/* Refuses an output that shares memory with another output or with what is read. The views of
 * `bound` take part, and so does the workspace. in_place: the output may be exactly the query. */
mha_status mha_bound_check_overlap(const mha_run *run, const mha_bound *bound, const char *who,
                                   const char *query_name, bool in_place);

#endif
