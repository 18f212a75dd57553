/* All arguments of an attention's call: each there exactly where its bit says so, within the rules
 * of its kind, apart from the others; and host arrays on their way to the device. */
#include "bound.h"

#include "log.h"
#include "shape.h"

mha_status mha_bound_take_lengths(const mha_run *run, mha_bound *out, const char *who,
                                  const mha_attention_desc *desc, const mha_attention_args *args)
{
    out->appends = desc->uses & MHA_USES_APPEND;
    out->query_len = args->query_len ? args->query_len : desc->query_len;
    out->key_len = args->key_len ? args->key_len : desc->key_len;
    if (out->query_len > desc->query_len || out->key_len > desc->key_len)
        return mha_log_fail(
            &run->context->log, MHA_INVALID_ARGUMENT,
            "%s: the call's query_len %zu and key_len %zu may be at most the desc's "
            "%zu and %zu",
            who, out->query_len, out->key_len, desc->query_len, desc->key_len);
    out->new_len = args->new_len ? args->new_len : desc->new_len;
    if (out->new_len > desc->new_len)
        return mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                            "%s: the call's new_len %zu may be at most the desc's, which is %zu",
                            who, out->new_len, desc->new_len);
    return MHA_OK;
}

/* Binds an optional tensor whose full shape may be broadcast along some axes. */
static mha_status bind_option(const mha_run *run, mha_view *out, const char *who, const char *name,
                              bool used, const mha_tensor *tensor, const size_t shape[4],
                              unsigned broadcast, size_t bytes, mha_access access)
{
    *out = (mha_view){ 0 };
    const bool empty = mha_shape_is_empty(shape);
    if (!(empty && used)) {
        const mha_status status = mha_bind_check_pair(run, who, name, used, tensor->buffer);
        if (status || !used)
            return status;
    }
    size_t narrow[4];
    mha_shape_narrow(narrow, shape, broadcast);
    return mha_bind_tensor(run, out, who, name, tensor, narrow, bytes, access);
}

/* One float32 a head. A stride of batches counts only for slopes. */
static mha_status bind_per_head(const mha_run *run, mha_view *out, const char *who,
                                const char *name, bool used, const mha_tensor *tensor,
                                const mha_attention_desc *desc, bool may_differ)
{
    *out = (mha_view){ 0 };
    if (used && !desc->batch && !tensor->buffer)
        return MHA_OK; /* none are read */
    mha_status status = mha_bind_check_pair(run, who, name, used, tensor->buffer);
    if (status || !used)
        return status;
    const size_t stride = may_differ ? tensor->strides[0] : 0;
    const size_t last = tensor->strides[3] ? tensor->strides[3] : 1;
    const mha_tensor rows = { tensor->buffer, tensor->offset, { stride, 0, 0, last } };
    return mha_bind_tensor(run, out, who, name, &rows,
                           (size_t[]){ stride ? desc->batch : 1, 1, 1, desc->heads }, sizeof(float),
                           MHA_READS);
}

static mha_status bind_arrays(const mha_run *run, mha_bound *out, const char *who,
                              const mha_attention_desc *desc, const mha_attention_args *args)
{
    const uint64_t uses = desc->uses;
    const size_t batch = desc->batch;
    mha_status status =
        mha_bind_lengths(run, &out->key_lengths, who, "key_lengths", uses & MHA_USES_KEY_LENGTHS,
                         &args->key_lengths, batch, out->key_len, "key_len");
    if (!status)
        status =
            mha_bind_lengths(run, &out->key_starts, who, "key_starts", uses & MHA_USES_KEY_STARTS,
                             &args->key_starts, batch, out->key_len, "key_len");
    if (!status)
        status =
            mha_bind_lengths(run, &out->per_query, who, "key_lengths_per_query",
                             uses & MHA_USES_KEY_LENGTHS_PER_QUERY, &args->key_lengths_per_query,
                             batch * out->query_len, out->key_len, "key_len");
    return status;
}

/* The largest position that a batch's first new key may have. */
static size_t most_position(const mha_attention_desc *desc, const mha_bound *bound,
                            const char **name)
{
    size_t most = bound->key_len - bound->new_len;
    *name = "key_len - new_len";
    if (desc->uses & MHA_USES_RING) {
        most = MHA_MOST_AXIS - bound->new_len;
        *name = "the largest position";
    }
    if (desc->uses & MHA_USES_ROTARY && desc->rotary_positions - bound->new_len < most) {
        most = desc->rotary_positions - bound->new_len;
        *name = "rotary_positions - new_len";
    }
    return most;
}

static mha_status check_cache(const mha_run *run, const mha_bound *bound, const char *who,
                              const mha_attention_desc *desc)
{
    const mha_log *log = &run->context->log;
    const uint64_t uses = desc->uses;
    if (uses & MHA_USES_APPEND && bound->new_len > bound->key_len)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: %zu new keys do not fit a cache with key_len %zu", who,
                            bound->new_len, bound->key_len);
    if (uses & MHA_USES_RING && bound->key_len != desc->key_len)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: the call's key_len is %zu, and a ring's is always the desc's, %zu",
                            who, bound->key_len, desc->key_len);
    if (uses & MHA_USES_RING && !mha_shape_fits_ring(desc, bound->query_len, bound->key_len))
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: a ring of key_len %zu overwrites keys that a query may see: it "
                            "must be at least window_left + query_len, %zu + %zu",
                            who, bound->key_len, desc->window_left, bound->query_len);
    if (uses & MHA_USES_ROTARY && bound->query_len != bound->new_len)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: rotary positions need as many queries as new keys, and the call's "
                            "query_len is %zu, its new_len %zu",
                            who, bound->query_len, bound->new_len);
    if (uses & MHA_USES_ROTARY && bound->new_len > desc->rotary_positions)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: rotary_positions is %zu, fewer than the call's new_len, %zu", who,
                            desc->rotary_positions, bound->new_len);
    return MHA_OK;
}

/* What a cache takes besides itself and the new keys. */
static mha_status bind_cache(const mha_run *run, mha_bound *out, const char *who,
                             const mha_attention_desc *desc, const mha_attention_args *args)
{
    const size_t b = desc->batch;
    const bool appends = desc->uses & MHA_USES_APPEND, rotates = desc->uses & MHA_USES_ROTARY;
    /* Without a batch no row is read. */
    const size_t table[4] = { b ? 1 : 0, 1, desc->rotary_positions, desc->rotary_dim / 2 };
    mha_status status = check_cache(run, out, who, desc);
    if (!status)
        status = bind_option(run, &out->rotary_cos, who, "rotary_cos", rotates, &args->rotary_cos,
                             table, 0, sizeof(float), MHA_READS);
    if (!status)
        status = bind_option(run, &out->rotary_sin, who, "rotary_sin", rotates, &args->rotary_sin,
                             table, 0, sizeof(float), MHA_READS);
    const char *most_name = "";
    const size_t most = appends ? most_position(desc, out, &most_name) : 0;
    if (!status)
        status = mha_bind_lengths(run, &out->positions, who, "append_positions", appends,
                                  &args->append_positions, b, most, most_name);
    return status;
}

static mha_status bind_dropout(const mha_run *run, mha_bound *out, const char *who,
                               const mha_attention_desc *desc, const mha_attention_args *args)
{
    if (!(desc->uses & MHA_USES_DROPOUT) && (args->dropout_seed || args->dropout_offset))
        return mha_bind_check_pair(run, who, "dropout_seed or dropout_offset", false, true);
    out->dropout_seed = args->dropout_seed;
    out->dropout_offset = args->dropout_offset;
    return MHA_OK;
}

/* Ascending, with no sequence above `most`, which the sentence calls most_name. */
static mha_status check_offsets(const mha_run *run, const char *who, const char *name,
                                const int32_t *offsets, size_t batch, size_t most,
                                const char *most_name)
{
    for (size_t i = 0; offsets && i < batch; i++) {
        if (offsets[i + 1] < offsets[i])
            return mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                                "%s: %s[%zu] is %ld, below the one before it, %ld", who, name,
                                i + 1, (long)offsets[i + 1], (long)offsets[i]);
        if ((size_t)(offsets[i + 1] - offsets[i]) > most)
            return mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                                "%s: sequence %zu of %s has %ld rows, more than %s, which is %zu",
                                who, i, name, (long)(offsets[i + 1] - offsets[i]), most_name, most);
    }
    return MHA_OK;
}

typedef struct offsets_rule {
    const char *name, *total_name, *most_name;
    bool used;
    const mha_lengths *offsets;
    size_t total, most;
} offsets_rule;

/* Writes the rows that the sequences lie in to *total, as given or as the last offset says. */
static mha_status bind_offsets(const mha_run *run, mha_bound_lengths *out, size_t *total,
                               const char *who, size_t batch, const offsets_rule *rule)
{
    const mha_log *log = &run->context->log;
    *total = rule->total;
    if (rule->used && batch && !*total && rule->offsets->host && rule->offsets->host[batch] > 0)
        *total = (size_t)rule->offsets->host[batch];
    if (!rule->used && rule->total)
        return mha_bind_check_pair(run, who, rule->total_name, false, true);
    if (*total > MHA_MOST_AXIS)
        return mha_log_fail(log, MHA_TOO_LARGE, "%s: %s is %zu, the most is %zu", who,
                            rule->total_name, *total, MHA_MOST_AXIS);
    if (rule->used && !*total && batch && rule->most && rule->offsets->buffer)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: %s is 0; with %s in device memory it must say how many rows there "
                            "are",
                            who, rule->total_name, rule->name);
    mha_status status = mha_bind_lengths(run, out, who, rule->name, rule->used, rule->offsets,
                                         batch ? batch + 1 : 0, *total, rule->total_name);
    if (!status && rule->used)
        status = check_offsets(run, who, rule->name, out->host, batch, rule->most, rule->most_name);
    return status;
}

mha_status mha_bound_take_offsets(const mha_run *run, mha_bound *out, const char *who,
                                  const mha_attention_desc *desc, const mha_attention_args *args)
{
    const offsets_rule query = {
        .name = "query_offsets",
        .total_name = "query_total",
        .most_name = "query_len",
        .used = desc->uses & MHA_USES_QUERY_OFFSETS,
        .offsets = &args->query_offsets,
        .total = args->query_total,
        .most = out->query_len,
    };
    const offsets_rule key = {
        .name = "key_offsets",
        .total_name = "key_total",
        .most_name = "key_len",
        .used = desc->uses & MHA_USES_KEY_OFFSETS,
        .offsets = &args->key_offsets,
        .total = args->key_total,
        .most = out->key_len,
    };
    const size_t batch = desc->batch;
    mha_status status =
        bind_offsets(run, &out->query_offsets, &out->query_total, who, batch, &query);
    if (!status)
        status = bind_offsets(run, &out->key_offsets, &out->key_total, who, batch, &key);
    return status;
}

mha_status mha_bound_take_options(const mha_run *run, mha_bound *out, const char *who,
                                  const mha_attention_desc *desc, const mha_attention_args *args)
{
    const uint64_t uses = desc->uses;
    const size_t scores[4] = { desc->batch, desc->heads, out->query_len, out->key_len };
    const bool packs = uses & MHA_USES_QUERY_OFFSETS;
    const size_t rows[4] = { packs ? 1 : desc->batch, desc->heads,
                             packs ? out->query_total : out->query_len, 1 };
    const struct {
        mha_view *view;
        const char *name;
        uint64_t bit;
        const mha_tensor *tensor;
        const size_t *shape;
        unsigned broadcast;
        size_t bytes;
        mha_access access;
    } tensors[] = {
        { &out->bias, "bias", MHA_USES_BIAS, &args->bias, scores, desc->bias_broadcast,
          mha_bind_type_bytes(desc->bias_type), MHA_READS },
        { &out->mask, "mask", MHA_USES_MASK, &args->mask, scores, desc->mask_broadcast, 1,
          MHA_READS },
        { &out->probs, "probs", MHA_USES_PROBS, &args->probs, scores, 0,
          mha_bind_type_bytes(desc->scores_type), MHA_WRITES },
        { &out->scores, "scores", MHA_USES_SCORES, &args->scores, scores, 0,
          mha_bind_type_bytes(desc->scores_type), MHA_WRITES },
        { &out->lse, "lse", MHA_USES_LSE, &args->lse, rows, 0, sizeof(float), MHA_WRITES },
    };
    mha_status status = MHA_OK;
    for (size_t i = 0; !status && i < sizeof tensors / sizeof tensors[0]; i++)
        status = bind_option(run, tensors[i].view, who, tensors[i].name, uses & tensors[i].bit,
                             tensors[i].tensor, tensors[i].shape, tensors[i].broadcast,
                             tensors[i].bytes, tensors[i].access);
    if (!status)
        status = bind_per_head(run, &out->slopes, who, "alibi_slopes", uses & MHA_USES_ALIBI,
                               &args->alibi_slopes, desc, true);
    if (!status)
        status = bind_per_head(run, &out->sinks, who, "sinks", uses & MHA_USES_SINKS, &args->sinks,
                               desc, false);
    if (!status)
        status = bind_arrays(run, out, who, desc, args);
    if (!status)
        status = bind_cache(run, out, who, desc, args);
    if (!status)
        status = bind_dropout(run, out, who, desc, args);
    return status;
}

mha_status mha_bound_take_new(const mha_run *run, mha_bound *out, const char *who,
                              const mha_attention_desc *desc, const mha_attention_args *args)
{
    const bool appends = desc->uses & MHA_USES_APPEND;
    const size_t bytes = mha_bind_type_bytes(desc->new_type);
    const size_t key[4] = { desc->batch, desc->kv_heads, out->new_len, desc->head_dim };
    const size_t value[4] = { desc->batch, desc->kv_heads, out->new_len, desc->value_dim };
    const mha_status status = bind_option(run, &out->new_key, who, "new_key", appends,
                                          &args->new_key, key, 0, bytes, MHA_READS);
    return status ? status
                  : bind_option(run, &out->new_value, who, "new_value", appends, &args->new_value,
                                value, 0, bytes, MHA_READS);
}

/* A packed cache is packed at its room, which is the desc's key_len, whatever the call's is. */
static mha_tensor cache_of(const mha_attention_desc *desc, const mha_tensor *tensor, size_t dim)
{
    mha_tensor cache = *tensor;
    const size_t *strides = tensor->strides;
    if (!(desc->uses & MHA_USES_APPEND) || strides[0] || strides[1] || strides[2] || strides[3])
        return cache;
    cache.strides[3] = 1;
    cache.strides[2] = dim;
    cache.strides[1] = desc->key_len * dim; /* mha_shape_resolve has checked the products */
    cache.strides[0] = desc->kv_heads * cache.strides[1];
    return cache;
}

mha_status mha_bound_take_keys(const mha_run *run, mha_bound *out, const char *who,
                               const mha_attention_desc *desc, const mha_attention_args *args)
{
    const bool packs = desc->uses & MHA_USES_KEY_OFFSETS;
    const size_t b = packs ? 1 : desc->batch, kv = desc->kv_heads;
    const size_t len = packs ? out->key_total : out->key_len;
    const size_t bytes = mha_bind_type_bytes(desc->key_value_type);
    const mha_tensor key = cache_of(desc, &args->key, desc->head_dim);
    const mha_tensor value = cache_of(desc, &args->value, desc->value_dim);
    const mha_access access = desc->uses & MHA_USES_APPEND ? MHA_UPDATES : MHA_READS;
    const mha_status status = mha_bind_tensor(
        run, &out->key, who, "key", &key, (size_t[]){ b, kv, len, desc->head_dim }, bytes, access);
    return status ? status
                  : mha_bind_tensor(run, &out->value, who, "value", &value,
                                    (size_t[]){ b, kv, len, desc->value_dim }, bytes, access);
}

mha_key_counts mha_bound_key_counts(const mha_attention_desc *desc, const mha_bound *bound)
{
    const bool appends = desc->uses & MHA_USES_APPEND && !(desc->uses & MHA_USES_KEY_LENGTHS);
    const mha_bound_lengths *lengths = appends ? &bound->positions : &bound->key_lengths;
    return (mha_key_counts){ .buffer = lengths->buffer,
                             .offset = lengths->offset,
                             .more = appends ? bound->new_len : 0 };
}

/* The int32 arrays that an attention may have, in the order in which they lie in a workspace. */
typedef struct array_place {
    uint64_t bit;
    const char *stage; /* of its copy from host memory */
    size_t count;      /* at the desc's lengths */
    mha_bound_lengths *bound;
} array_place;

enum {
    NUM_ARRAYS = 6
};

static void list_arrays(array_place list[NUM_ARRAYS], const mha_attention_desc *desc,
                        mha_bound *bound)
{
    const size_t b = desc->batch;
    const array_place all[NUM_ARRAYS] = {
        { MHA_USES_KEY_LENGTHS, "key lengths", b, &bound->key_lengths },
        { MHA_USES_KEY_STARTS, "key starts", b, &bound->key_starts },
        { MHA_USES_APPEND, "append positions", b, &bound->positions },
        { MHA_USES_QUERY_OFFSETS, "query offsets", b + 1, &bound->query_offsets },
        { MHA_USES_KEY_OFFSETS, "key offsets", b + 1, &bound->key_offsets },
        { MHA_USES_KEY_LENGTHS_PER_QUERY, "key lengths per query", b * desc->query_len,
          &bound->per_query },
    };
    for (int i = 0; i < NUM_ARRAYS; i++) {
        list[i] = all[i];
        if (!(desc->uses & all[i].bit))
            list[i].count = 0;
    }
}

size_t mha_bound_upload_bytes(const mha_attention_desc *desc)
{
    mha_bound unbound = { 0 };
    array_place list[NUM_ARRAYS];
    list_arrays(list, desc, &unbound);
    size_t end = 0;
    for (int i = 0; i < NUM_ARRAYS; i++)
        mha_layout_add(&end, list[i].count * sizeof(cl_int));
    return end;
}

mha_status mha_bound_upload(mha_run *run, mha_bound *bound, const mha_attention_desc *desc,
                            size_t region_bytes)
{
    array_place list[NUM_ARRAYS];
    list_arrays(list, desc, bound);
    size_t end = region_bytes;
    mha_status status = MHA_OK;
    for (int i = 0; !status && i < NUM_ARRAYS; i++) {
        const size_t at = mha_layout_add(&end, list[i].count * sizeof(cl_int));
        status = mha_bind_upload_one(run, list[i].bound, list[i].stage, at);
    }
    return status;
}

static mha_view view_of(const mha_bound_lengths *lengths)
{
    return (mha_view){ .root = lengths->root,
                       .first_byte = lengths->first_byte,
                       .end_byte = lengths->end_byte };
}

void mha_bound_list_views(const mha_bound *bound, const char *query_name, mha_bound_list *out)
{
    const mha_bound_lengths *const arrays[MHA_BOUND_ARRAYS] = {
        &bound->key_lengths, &bound->per_query,     &bound->key_starts,
        &bound->positions,   &bound->query_offsets, &bound->key_offsets,
    };
    for (int i = 0; i < MHA_BOUND_ARRAYS; i++)
        out->arrays[i] = view_of(arrays[i]);
    const mha_access cache = bound->appends ? MHA_UPDATES : MHA_READS;
    const struct {
        const mha_view *view;
        const char *name;
        mha_access access;
    } list[MHA_BOUND_VIEWS] = {
        { &bound->output, "output", MHA_WRITES },
        { &bound->probs, "probs", MHA_WRITES },
        { &bound->scores, "scores", MHA_WRITES },
        { &bound->lse, "lse", MHA_WRITES },
        { &bound->query, query_name, MHA_READS },
        { &bound->key, "key", cache },
        { &bound->value, "value", cache },
        { &bound->bias, "bias", MHA_READS },
        { &bound->mask, "mask", MHA_READS },
        { &bound->slopes, "alibi_slopes", MHA_READS },
        { &bound->sinks, "sinks", MHA_READS },
        { &out->arrays[0], "key_lengths", MHA_READS },
        { &out->arrays[1], "key_lengths_per_query", MHA_READS },
        { &out->arrays[2], "key_starts", MHA_READS },
        { &bound->new_key, "new_key", MHA_READS },
        { &bound->new_value, "new_value", MHA_READS },
        { &out->arrays[3], "append_positions", MHA_READS },
        { &bound->rotary_cos, "rotary_cos", MHA_READS },
        { &bound->rotary_sin, "rotary_sin", MHA_READS },
        { &out->arrays[4], "query_offsets", MHA_READS },
        { &out->arrays[5], "key_offsets", MHA_READS },
    };
    for (int i = 0; i < MHA_BOUND_VIEWS; i++) {
        out->views[i] = list[i].view;
        out->names[i] = list[i].name;
        out->accesses[i] = list[i].access;
    }
}

mha_status mha_bound_check_overlap(const mha_run *run, const mha_bound *bound, const char *who,
                                   const char *query_name, bool in_place)
{
    mha_bound whole = *bound;
    if (in_place && mha_bind_coincide(&bound->query, &bound->output))
        whole.query = (mha_view){ 0 };
    mha_bound_list list;
    mha_bound_list_views(&whole, query_name, &list);
    return mha_bind_apart(run, who, list.views, list.names, list.accesses, MHA_BOUND_VIEWS);
}
