/* From a call's arguments to views that kernels may trust: every rule that drivers do not check. */
#include "bind.h"

#include "log.h"
#include "shape.h"

/* The facts of a buffer, and of the buffer it is a part of. */
typedef struct buffer_facts {
    size_t size;
    cl_mem root;
    size_t origin; /* bytes into root */
} buffer_facts;

static mha_status check_buffer(const mha_run *run, buffer_facts *out, const char *who,
                               const char *name, cl_mem buffer, mha_access access)
{
    const mha_log *log = &run->context->log;
    cl_context cl = NULL;
    cl_mem parent = NULL;
    cl_mem_flags flags = 0;
    size_t size = 0, origin = 0;
    cl_int error = clGetMemObjectInfo(buffer, CL_MEM_CONTEXT, sizeof cl, &cl, NULL);
    if (!error)
        error = clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof size, &size, NULL);
    if (!error)
        error = clGetMemObjectInfo(buffer, CL_MEM_FLAGS, sizeof flags, &flags, NULL);
    if (!error)
        error =
            clGetMemObjectInfo(buffer, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent, NULL);
    if (!error && parent)
        error = clGetMemObjectInfo(buffer, CL_MEM_OFFSET, sizeof origin, &origin, NULL);
    if (error)
        return mha_log_fail(log, error, "%s: clGetMemObjectInfo of %s failed", who, name);
    if (cl != run->context->cl)
        return mha_log_fail(log, MHA_WRONG_CONTEXT,
                            "%s: the buffer of %s belongs to another OpenCL context than the "
                            "mha_context",
                            who, name);
    if (access & MHA_WRITES && flags & CL_MEM_READ_ONLY)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: the buffer of %s is CL_MEM_READ_ONLY, and it is written", who,
                            name);
    if (access & MHA_READS && flags & CL_MEM_WRITE_ONLY)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: the buffer of %s is CL_MEM_WRITE_ONLY, and it is read", who, name);
    *out = (buffer_facts){ .size = size, .root = parent ? parent : buffer, .origin = origin };
    return MHA_OK;
}

/* Whether two indexes of an output could name one element: taken from the shortest stride up, each
 * stride must step over all that the shorter ones reach. */
static bool repeats_itself(const size_t shape[4], const size_t strides[4])
{
    bool done[4] = { false };
    size_t reach = 1;
    for (int round = 0; round < 4; round++) {
        int next = -1;
        for (int axis = 0; axis < 4; axis++)
            if (!done[axis] && shape[axis] > 1 && (next < 0 || strides[axis] < strides[next]))
                next = axis;
        if (next < 0)
            return false;
        if (strides[next] < reach)
            return true;
        done[next] = true;
        reach += (shape[next] - 1) * strides[next];
    }
    return false;
}

/* Strides as kernels want them: packed ones spelled out, 0 along axes of length 1. */
static mha_status resolve_strides(const mha_run *run, size_t out[4], const char *who,
                                  const char *name, const mha_tensor *tensor, const size_t shape[4],
                                  mha_access access)
{
    const bool packed =
        !tensor->strides[0] && !tensor->strides[1] && !tensor->strides[2] && !tensor->strides[3];
    size_t step = 1;
    for (int axis = 3; axis >= 0; axis--) {
        const size_t stride = packed ? step : tensor->strides[axis];
        out[axis] = shape[axis] > 1 ? stride : 0;
        step *= shape[axis];
    }
    if (shape[3] > 1 && out[3] != 1)
        return mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                            "%s: %s.strides[3] is %zu; the last axis must be contiguous, so 1", who,
                            name, out[3]);
    if (access & MHA_WRITES && repeats_itself(shape, out))
        return mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                            "%s: the strides of %s (%zu, %zu, %zu, %zu) make it write an element "
                            "twice",
                            who, name, out[0], out[1], out[2], out[3]);
    return MHA_OK;
}

mha_status mha_bind_tensor(const mha_run *run, mha_view *out, const char *who, const char *name,
                           const mha_tensor *tensor, const size_t shape[4], size_t bytes,
                           mha_access access)
{
    const mha_log *log = &run->context->log;
    *out = (mha_view){ 0 };
    const bool empty = mha_shape_is_empty(shape);
    if (!tensor->buffer && empty)
        return MHA_OK;
    if (!tensor->buffer)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: %s is not given", who, name);
    buffer_facts facts;
    mha_status status = check_buffer(run, &facts, who, name, tensor->buffer, access);
    if (!status && !empty)
        status = resolve_strides(run, out->strides, who, name, tensor, shape, access);
    if (status)
        return status;

    const mha_size reach = mha_shape_reach(shape, tensor->strides);
    if (reach.overflows || reach.value > SIZE_MAX / bytes ||
        tensor->offset > SIZE_MAX / bytes - reach.value)
        return mha_log_fail(log, MHA_TOO_LARGE,
                            "%s: offset and strides of %s pass the largest size_t", who, name);
    const size_t end = (tensor->offset + reach.value) * bytes;
    if (!empty && end > facts.size)
        return mha_log_fail(log, MHA_BUFFER_TOO_SMALL,
                            "%s: %s [%zu][%zu][%zu][%zu] ends at byte %zu of its buffer, which has "
                            "%zu",
                            who, name, shape[0], shape[1], shape[2], shape[3], end, facts.size);
    out->buffer = tensor->buffer;
    out->offset = tensor->offset;
    out->root = facts.root;
    out->first_byte = facts.origin + tensor->offset * bytes;
    out->end_byte = empty ? out->first_byte : facts.origin + end;
    return MHA_OK;
}

size_t mha_bind_type_bytes(mha_type type)
{
    return type == MHA_FLOAT32 ? 4 : 2;
}

mha_view mha_bind_packed(cl_mem buffer, size_t offset_bytes, const size_t shape[4])
{
    mha_view view = { .buffer = buffer, .offset = offset_bytes / sizeof(float) };
    size_t step = 1;
    for (int axis = 3; axis >= 0; axis--) {
        view.strides[axis] = shape[axis] > 1 ? step : 0;
        step *= shape[axis];
    }
    return view;
}

mha_status mha_bind_call_lengths(const mha_run *run, mha_bound *out, const char *who,
                                 const mha_attention_desc *desc, const mha_attention_args *args)
{
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

/* An argument and its bit of uses go together. */
static mha_status check_pair(const mha_run *run, const char *who, const char *name, bool used,
                             bool given)
{
    if (used == given)
        return MHA_OK;
    return mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                        used ? "%s: %s is not given, but desc.uses says that it takes part"
                             : "%s: %s is given, but desc.uses does not say that it takes part",
                        who, name);
}

mha_status mha_bind_lengths(const mha_run *run, mha_bound_lengths *out, const char *who,
                            const char *name, bool used, const mha_lengths *lengths, size_t count,
                            size_t most, const char *most_name)
{
    const mha_log *log = &run->context->log;
    *out = (mha_bound_lengths){ 0 };
    if (lengths->host && lengths->buffer)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: %s is given in host memory and as a buffer; give one", who, name);
    if (used && !count && !lengths->host && !lengths->buffer)
        return MHA_OK; /* none are read */
    mha_status status = check_pair(run, who, name, used, lengths->host || lengths->buffer);
    if (status || !used)
        return status;
    out->count = count;
    out->host = lengths->host;
    for (size_t i = 0; lengths->host && i < count; i++)
        if (lengths->host[i] < 0 || (size_t)lengths->host[i] > most)
            return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                                "%s: %s[%zu] is %ld, it must be from 0 to %s, which is %zu", who,
                                name, i, (long)lengths->host[i], most_name, most);
    if (lengths->host)
        return MHA_OK;
    mha_view view;
    status = mha_bind_tensor(run, &view, who, name,
                             &(mha_tensor){ .buffer = lengths->buffer, .offset = lengths->offset },
                             (size_t[]){ 1, 1, 1, count }, sizeof(cl_int), MHA_READS);
    out->buffer = view.buffer;
    out->offset = view.offset;
    out->root = view.root;
    out->first_byte = view.first_byte;
    out->end_byte = view.end_byte;
    return status;
}

/* Binds an optional tensor whose full shape may be broadcast along some axes. */
static mha_status bind_option(const mha_run *run, mha_view *out, const char *who, const char *name,
                              bool used, const mha_tensor *tensor, const size_t shape[4],
                              unsigned broadcast, size_t bytes, mha_access access)
{
    *out = (mha_view){ 0 };
    const bool empty = mha_shape_is_empty(shape);
    if (!(empty && used)) {
        const mha_status status = check_pair(run, who, name, used, tensor->buffer);
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
    mha_status status = check_pair(run, who, name, used, tensor->buffer);
    if (status || !used)
        return status;
    const size_t stride = may_differ ? tensor->strides[0] : 0;
    const mha_tensor rows = { tensor->buffer, tensor->offset, { stride, 0, 0, 1 } };
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

/* What a cache takes besides itself. */
static mha_status bind_cache(const mha_run *run, mha_bound *out, const char *who,
                             const mha_attention_desc *desc, const mha_attention_args *args)
{
    const size_t b = desc->batch, kv = desc->kv_heads, n = out->new_len;
    const bool appends = desc->uses & MHA_USES_APPEND, rotates = desc->uses & MHA_USES_ROTARY;
    const size_t key[4] = { b, kv, n, desc->head_dim };
    const size_t value[4] = { b, kv, n, desc->value_dim };
    /* Without a batch no row is read. */
    const size_t table[4] = { b ? 1 : 0, 1, desc->rotary_positions, desc->rotary_dim / 2 };
    const size_t bytes = mha_bind_type_bytes(desc->new_type);
    mha_status status = check_cache(run, out, who, desc);
    if (!status)
        status = bind_option(run, &out->new_key, who, "new_key", appends, &args->new_key, key, 0,
                             bytes, MHA_READS);
    if (!status)
        status = bind_option(run, &out->new_value, who, "new_value", appends, &args->new_value,
                             value, 0, bytes, MHA_READS);
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
        return check_pair(run, who, "dropout_seed or dropout_offset", false, true);
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
        return check_pair(run, who, rule->total_name, false, true);
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

mha_status mha_bind_offsets(const mha_run *run, mha_bound *out, const char *who,
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

mha_status mha_bind_options(const mha_run *run, mha_bound *out, const char *who,
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

mha_key_counts mha_bind_key_counts(const mha_attention_desc *desc, const mha_bound *bound)
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

size_t mha_bind_lengths_bytes(const mha_attention_desc *desc)
{
    mha_bound unbound = { 0 };
    array_place list[NUM_ARRAYS];
    list_arrays(list, desc, &unbound);
    size_t end = 0;
    for (int i = 0; i < NUM_ARRAYS; i++)
        mha_layout_add(&end, list[i].count * sizeof(cl_int));
    return end;
}

mha_status mha_bind_upload_one(mha_run *run, mha_bound_lengths *lengths, const char *stage,
                               size_t offset_bytes)
{
    if (!lengths->host || !lengths->count)
        return MHA_OK;
    lengths->buffer = run->workspace;
    lengths->offset = offset_bytes / sizeof(cl_int);
    return mha_run_write(run, stage, run->workspace, offset_bytes, lengths->host,
                         lengths->count * sizeof(cl_int));
}

mha_status mha_bind_upload(mha_run *run, mha_bound *bound, const mha_attention_desc *desc,
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

static bool is_empty(const mha_view *view)
{
    return view->first_byte == view->end_byte;
}

static bool meet(const mha_view *a, const mha_view *b)
{
    return a->root && a->root == b->root && !is_empty(a) && !is_empty(b) &&
           a->first_byte < b->end_byte && b->first_byte < a->end_byte;
}

/* The whole workspace as a view, so that nothing else may lie in it. */
static mha_status view_workspace(const mha_run *run, mha_view *out, const char *who)
{
    *out = (mha_view){ 0 };
    if (!run->workspace)
        return MHA_OK;
    buffer_facts facts;
    const mha_status status =
        check_buffer(run, &facts, who, "workspace", run->workspace, MHA_WRITES);
    if (!status)
        *out = (mha_view){ .root = facts.root,
                           .first_byte = facts.origin,
                           .end_byte = facts.origin + facts.size };
    return status;
}

mha_status mha_bind_apart(const mha_run *run, const char *who, const mha_view *const *views,
                          const char *const *names, const mha_access *accesses, size_t count)
{
    mha_view workspace;
    const mha_status status = view_workspace(run, &workspace, who);
    if (status)
        return status;
    for (size_t i = 0; i < count; i++) {
        if (meet(views[i], &workspace))
            return mha_log_fail(&run->context->log, MHA_OVERLAP,
                                "%s: %s lies in the buffer of call.workspace", who, names[i]);
        for (size_t j = 0; accesses[i] & MHA_WRITES && j < count; j++)
            if (j != i && meet(views[i], views[j]))
                return mha_log_fail(&run->context->log, MHA_OVERLAP,
                                    "%s: %s shares memory with %s: bytes %zu to %zu and %zu to %zu "
                                    "of one buffer",
                                    who, names[i], names[j], views[i]->first_byte,
                                    views[i]->end_byte, views[j]->first_byte, views[j]->end_byte);
    }
    return MHA_OK;
}

static mha_view view_of(const mha_bound_lengths *lengths)
{
    return (mha_view){ .root = lengths->root,
                       .first_byte = lengths->first_byte,
                       .end_byte = lengths->end_byte };
}

bool mha_bind_coincide(const mha_view *a, const mha_view *b)
{
    return a->root == b->root && a->first_byte == b->first_byte && a->end_byte == b->end_byte &&
           a->strides[0] == b->strides[0] && a->strides[1] == b->strides[1] &&
           a->strides[2] == b->strides[2];
}

mha_status mha_bind_overlap(const mha_run *run, const mha_bound *bound, const char *who,
                            const char *query_name, bool in_place)
{
    static const mha_view none = { 0 };
    const mha_view key_lengths = view_of(&bound->key_lengths);
    const mha_view per_query = view_of(&bound->per_query);
    const mha_view key_starts = view_of(&bound->key_starts);
    const mha_view positions = view_of(&bound->positions);
    const mha_view query_offsets = view_of(&bound->query_offsets);
    const mha_view key_offsets = view_of(&bound->key_offsets);
    const mha_view *query =
        in_place && mha_bind_coincide(&bound->query, &bound->output) ? &none : &bound->query;
    const mha_access cache = bound->new_key.root ? MHA_UPDATES : MHA_READS;
    const struct {
        const mha_view *view;
        const char *name;
        mha_access access;
    } list[] = {
        { &bound->output, "output", MHA_WRITES },
        { &bound->probs, "probs", MHA_WRITES },
        { &bound->scores, "scores", MHA_WRITES },
        { &bound->lse, "lse", MHA_WRITES },
        { query, query_name, MHA_READS },
        { &bound->key, "key", cache },
        { &bound->value, "value", cache },
        { &bound->bias, "bias", MHA_READS },
        { &bound->mask, "mask", MHA_READS },
        { &bound->slopes, "alibi_slopes", MHA_READS },
        { &bound->sinks, "sinks", MHA_READS },
        { &key_lengths, "key_lengths", MHA_READS },
        { &per_query, "key_lengths_per_query", MHA_READS },
        { &key_starts, "key_starts", MHA_READS },
        { &bound->new_key, "new_key", MHA_READS },
        { &bound->new_value, "new_value", MHA_READS },
        { &positions, "append_positions", MHA_READS },
        { &bound->rotary_cos, "rotary_cos", MHA_READS },
        { &bound->rotary_sin, "rotary_sin", MHA_READS },
        { &query_offsets, "query_offsets", MHA_READS },
        { &key_offsets, "key_offsets", MHA_READS },
    };
    enum {
        COUNT = sizeof list / sizeof list[0]
    };
    const mha_view *views[COUNT];
    const char *names[COUNT];
    mha_access accesses[COUNT];
    for (int i = 0; i < COUNT; i++) {
        views[i] = list[i].view;
        names[i] = list[i].name;
        accesses[i] = list[i].access;
    }
    return mha_bind_apart(run, who, views, names, accesses, COUNT);
}
