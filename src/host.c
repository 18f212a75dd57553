/* The host-array calls: copy in, the device call, copy out. Nothing is decided here. */
#include "attention.h"
#include "layer.h"
#include "log.h"
#include "shape.h"

#include <stdlib.h>
#include <string.h>

/* One array on its way to the device, and back if it is an output. */
typedef struct staged {
    const char *name;
    const void *from; /* what the device starts with, or NULL */
    void *to;         /* where the result goes, or NULL */
    size_t bytes;
    cl_mem *buffer; /* in the device call's arguments */
    size_t shape[4], strides[4];
    size_t element_bytes;
} staged;

static bool is_packed(const size_t strides[4])
{
    return !strides[0] && !strides[1] && !strides[2] && !strides[3];
}

static mha_status stage(mha_context *context, staged *array, const char *name, cl_mem *buffer,
                        const void *from, void *to, const size_t shape[4], const size_t strides[4],
                        size_t element_bytes)
{
    const mha_size reach = mha_shape_reach(shape, strides);
    if (reach.overflows || reach.value > SIZE_MAX / element_bytes)
        return mha_log_fail(&context->log, MHA_TOO_LARGE,
                            "the strides of %s pass the largest size_t", name);
    *array = (staged){ .name = name,
                       .from = from,
                       .to = to,
                       .bytes = reach.value * element_bytes,
                       .buffer = buffer,
                       .element_bytes = element_bytes };
    memcpy(array->shape, shape, sizeof array->shape);
    memcpy(array->strides, strides, sizeof array->strides);
    if (!array->bytes || (!from && !to))
        return MHA_OK;
    cl_int error = CL_SUCCESS;
    const cl_mem_flags flags =
        (to ? CL_MEM_READ_WRITE : CL_MEM_READ_ONLY) | (array->from ? CL_MEM_COPY_HOST_PTR : 0);
    /* OpenCL takes a pointer to const data as one to plain data, and only reads it here. */
    void *data = (void *)(uintptr_t)array->from;
    *buffer = clCreateBuffer(context->cl, flags, array->bytes, data, &error);
    if (!*buffer)
        return mha_context_note(context, mha_log_fail(&context->log, error,
                                                      "clCreateBuffer of %zu bytes for %s failed",
                                                      array->bytes, name));
    return MHA_OK;
}

static mha_status stage_input(mha_context *context, staged *array, const char *name,
                              mha_tensor *tensor, const mha_host_input *input,
                              const size_t shape[4], size_t element_bytes)
{
    for (int axis = 0; axis < 4; axis++)
        tensor->strides[axis] = input->strides[axis];
    return stage(context, array, name, &tensor->buffer, input->data, NULL, shape, input->strides,
                 element_bytes);
}

/* keeps: the call does not write all of it, and the rest stays as it is. */
static mha_status stage_output(mha_context *context, staged *array, const char *name,
                               mha_tensor *tensor, const mha_host_output *output,
                               const size_t shape[4], size_t element_bytes, bool keeps)
{
    for (int axis = 0; axis < 4; axis++)
        tensor->strides[axis] = output->strides[axis];
    return stage(context, array, name, &tensor->buffer, keeps ? output->data : NULL, output->data,
                 shape, output->strides, element_bytes);
}

static void release(staged *arrays, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (arrays[i].buffer && *arrays[i].buffer)
            clReleaseMemObject(*arrays[i].buffer);
}

/* The tensor's own elements out of a copy of all that it spans: its gaps may be another array's. */
static void place_rows(const staged *array, const unsigned char *from)
{
    const size_t *shape = array->shape;
    const size_t *strides = array->strides;
    const size_t bytes = array->element_bytes;
    for (size_t row = 0; row < shape[0] * shape[1] * shape[2]; row++) {
        const size_t i = row % shape[2];
        const size_t h = row / shape[2] % shape[1];
        const size_t b = row / shape[2] / shape[1];
        const size_t at = b * (shape[0] > 1 ? strides[0] : 0) +
                          h * (shape[1] > 1 ? strides[1] : 0) + i * (shape[2] > 1 ? strides[2] : 0);
        memcpy((unsigned char *)array->to + at * bytes, from + at * bytes, shape[3] * bytes);
    }
}

static mha_status copy_one_back(const mha_context *context, cl_command_queue queue,
                                const staged *array)
{
    const bool packed = is_packed(array->strides);
    void *to = packed ? array->to : malloc(array->bytes);
    if (!to)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY,
                            "no host memory for copying %s back", array->name);
    const cl_int error =
        clEnqueueReadBuffer(queue, *array->buffer, CL_TRUE, 0, array->bytes, to, 0, NULL, NULL);
    if (!packed && !error)
        place_rows(array, to);
    if (!packed)
        free(to);
    if (error)
        return mha_log_fail(&context->log, error, "copying %s back failed", array->name);
    return MHA_OK;
}

static mha_status copy_back(const mha_context *context, cl_command_queue queue,
                            const staged *arrays, size_t count)
{
    mha_status status = MHA_OK;
    for (size_t i = 0; !status && i < count; i++)
        if (arrays[i].to && arrays[i].buffer && *arrays[i].buffer)
            status = copy_one_back(context, queue, &arrays[i]);
    return status;
}

/* What the two kinds of object do with their device arguments. */
typedef struct host_work {
    mha_attention *attention; /* one of these two */
    mha_layer *layer;
    const mha_layer_weights *weights; /* of the layer: load, not run */
    const mha_attention_args *args;
} host_work;

static mha_status enqueue(const host_work *work, const mha_call *call)
{
    if (work->attention)
        return mha_attention_enqueue(work->attention, work->args, call);
    if (work->weights)
        return mha_layer_load(work->layer, work->weights, call);
    return mha_layer_enqueue(work->layer, work->args, call);
}

static mha_status run_queued(mha_context *context, const host_work *work, size_t workspace_bytes,
                             const staged *arrays, size_t count)
{
    cl_int error = CL_SUCCESS;
    mha_call call = { 0 };
    call.queue = clCreateCommandQueue(context->cl, context->device.device, 0, &error);
    if (!call.queue)
        return mha_context_note(context,
                                mha_log_fail(&context->log, error, "clCreateCommandQueue failed"));
    mha_status status = MHA_OK;
    if (workspace_bytes) {
        call.workspace =
            clCreateBuffer(context->cl, CL_MEM_READ_WRITE, workspace_bytes, NULL, &error);
        if (!call.workspace)
            status =
                mha_log_fail(&context->log, error,
                             "clCreateBuffer of a workspace of %zu bytes failed", workspace_bytes);
    }
    if (!status)
        status = enqueue(work, &call);
    /* Whatever was queued must end before the caller's arrays may go. */
    error = clFinish(call.queue);
    if (!status && error)
        status = mha_log_fail(&context->log, error, "clFinish failed");
    if (!status)
        status = copy_back(context, call.queue, arrays, count);
    if (call.workspace)
        clReleaseMemObject(call.workspace);
    clReleaseCommandQueue(call.queue);
    return mha_context_note(context, status);
}

typedef struct host_shapes {
    size_t query[4], key[4], value[4], output[4];
    size_t query_len, key_len; /* of a batch */
} host_shapes;

/* Stages all arrays of an attention or layer, runs it, and copies the outputs back. */
static mha_status run_staged(mha_context *context, const mha_attention_desc *desc,
                             const host_shapes *shapes, const mha_host_args *host, host_work *work,
                             size_t workspace_bytes)
{
    const size_t scores[4] = { desc->batch, desc->heads, shapes->query_len, shapes->key_len };
    const size_t rows[4] = { shapes->query[0], desc->heads, shapes->query[2], 1 };
    const size_t heads[4] = { 1, 1, 1, desc->heads };
    const size_t slopes[4] = { host->alibi_slopes.strides[0] ? desc->batch : 1, 1, 1, desc->heads };
    size_t bias[4], mask[4];
    mha_shape_narrow(bias, scores, desc->bias_broadcast);
    mha_shape_narrow(mask, scores, desc->mask_broadcast);
    const mha_host_input alibi_slopes = { host->alibi_slopes.data,
                                          { host->alibi_slopes.strides[0], 0, 0, 1 } };
    const mha_host_input sinks = { host->sinks.data, { 0 } };
    const size_t kv_bytes = mha_bind_type_bytes(desc->key_value_type);
    const size_t scores_bytes = mha_bind_type_bytes(desc->scores_type);
    mha_attention_args args = {
        .query_len = host->query_len,
        .key_len = host->key_len,
        .key_lengths.host = host->key_lengths,
        .key_lengths_per_query.host = host->key_lengths_per_query,
        .key_starts.host = host->key_starts,
        .query_offsets.host = host->query_offsets,
        .key_offsets.host = host->key_offsets,
        .dropout_seed = host->dropout_seed,
        .dropout_offset = host->dropout_offset,
    };
    const struct {
        const char *name;
        mha_tensor *tensor;
        const mha_host_input *from;
        const size_t *shape;
        size_t bytes;
    } inputs[] = {
        { "query", &args.query, &host->query, shapes->query, mha_bind_type_bytes(desc->type) },
        { "key", &args.key, &host->key, shapes->key, kv_bytes },
        { "value", &args.value, &host->value, shapes->value, kv_bytes },
        { "bias", &args.bias, &host->bias, bias, mha_bind_type_bytes(desc->bias_type) },
        { "mask", &args.mask, &host->mask, mask, 1 },
        { "alibi_slopes", &args.alibi_slopes, &alibi_slopes, slopes, sizeof(float) },
        { "sinks", &args.sinks, &sinks, heads, sizeof(float) },
    };
    const struct {
        const char *name;
        mha_tensor *tensor;
        const mha_host_output *to;
        const size_t *shape;
        size_t bytes;
    } outputs[] = {
        { "output", &args.output, &host->output, shapes->output,
          mha_bind_type_bytes(desc->output_type) },
        { "probs", &args.probs, &host->probs, scores, scores_bytes },
        { "scores", &args.scores, &host->scores, scores, scores_bytes },
        { "lse", &args.lse, &host->lse, rows, sizeof(float) },
    };
    enum {
        INPUTS = sizeof inputs / sizeof inputs[0],
        OUTPUTS = sizeof outputs / sizeof outputs[0]
    };
    staged arrays[INPUTS + OUTPUTS] = { { 0 } };
    mha_status status = MHA_OK;
    for (int i = 0; !status && i < INPUTS; i++)
        status = stage_input(context, &arrays[i], inputs[i].name, inputs[i].tensor, inputs[i].from,
                             inputs[i].shape, inputs[i].bytes);
    for (int i = 0; !status && i < OUTPUTS; i++)
        status = stage_output(context, &arrays[INPUTS + i], outputs[i].name, outputs[i].tensor,
                              outputs[i].to, outputs[i].shape, outputs[i].bytes,
                              desc->uses & MHA_USES_QUERY_OFFSETS);
    if (!status) {
        work->args = &args;
        status = run_queued(context, work, workspace_bytes, arrays, INPUTS + OUTPUTS);
    }
    release(arrays, INPUTS + OUTPUTS);
    return status;
}

/* An array that nobody asked for may be of any size, so it is refused before it is read. */
static mha_status refuse_unasked(const mha_context *context, const char *who,
                                 const mha_attention_desc *desc, const mha_host_args *args)
{
    const struct {
        const char *name;
        uint64_t bit;
        const void *data;
    } options[] = {
        { "bias", MHA_USES_BIAS, args->bias.data },
        { "mask", MHA_USES_MASK, args->mask.data },
        { "alibi_slopes", MHA_USES_ALIBI, args->alibi_slopes.data },
        { "sinks", MHA_USES_SINKS, args->sinks.data },
        { "probs", MHA_USES_PROBS, args->probs.data },
        { "scores", MHA_USES_SCORES, args->scores.data },
        { "lse", MHA_USES_LSE, args->lse.data },
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].data && !(desc->uses & options[i].bit))
            return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                                "%s: %s is given, but desc.uses does not say that it takes part",
                                who, options[i].name);
    return MHA_OK;
}

/* What must hold before any array is read: also that its size is one that the desc allows. */
static mha_status check_call(const mha_context *context, const char *who,
                             const mha_attention_desc *desc, const mha_host_args *args,
                             size_t *query_len, size_t *key_len)
{
    if (!args)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: args is NULL", who);
    const mha_status lost = mha_context_check(context);
    if (lost)
        return lost;
    *query_len = args->query_len ? args->query_len : desc->query_len;
    *key_len = args->key_len ? args->key_len : desc->key_len;
    if (*query_len > desc->query_len || *key_len > desc->key_len)
        return mha_log_fail(
            &context->log, MHA_INVALID_ARGUMENT,
            "%s: the call's query_len %zu and key_len %zu may be at most the desc's %zu and %zu",
            who, *query_len, *key_len, desc->query_len, desc->key_len);
    if (desc->uses & MHA_USES_APPEND)
        return mha_log_fail(&context->log, MHA_UNSUPPORTED,
                            "%s: MHA_USES_APPEND keeps a cache on the device, so it goes with "
                            "mha_attention_enqueue or mha_layer_enqueue",
                            who);
    return refuse_unasked(context, who, desc, args);
}

/* Rows of a tensor whose batches may lie end to end: then as many as the last offset says. Nothing
 * of that size is read before all offsets are known to be in order. */
static mha_status count_rows(const mha_context *context, const char *name, bool packs,
                             const int32_t *offsets, size_t batch, size_t len, size_t *rows)
{
    *rows = packs ? 0 : len;
    if (!packs || !batch)
        return MHA_OK;
    if (!offsets)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "mha_attention_run: %s is not given, but desc.uses says that it takes "
                            "part",
                            name);
    for (size_t i = 0; i <= batch; i++) {
        const size_t least = *rows; /* the offset before, or 0 */
        if (offsets[i] < 0 || (size_t)offsets[i] < least || (i && offsets[i] - least > len))
            return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                                "mha_attention_run: %s[%zu] is %ld, and before it is %zu: offsets "
                                "ascend from 0, and a sequence has at most %zu rows",
                                name, i, (long)offsets[i], least, len);
        *rows = (size_t)offsets[i];
    }
    return MHA_OK;
}

mha_status mha_attention_run(mha_attention *attention, const mha_host_args *args)
{
    if (!attention)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = mha_attention_context(attention);
    const mha_attention_desc *d = mha_attention_shape(attention);
    size_t q = 0, k = 0;
    const bool packs_queries = d->uses & MHA_USES_QUERY_OFFSETS;
    const bool packs_keys = d->uses & MHA_USES_KEY_OFFSETS;
    const size_t qb = packs_queries ? 1 : d->batch, kb = packs_keys ? 1 : d->batch;
    size_t q_rows = 0, k_rows = 0;
    mha_status status = check_call(context, "mha_attention_run", d, args, &q, &k);
    if (!status)
        status = count_rows(context, "query_offsets", packs_queries, args->query_offsets, d->batch,
                            q, &q_rows);
    if (!status)
        status =
            count_rows(context, "key_offsets", packs_keys, args->key_offsets, d->batch, k, &k_rows);
    if (status)
        return status;
    const host_shapes shapes = {
        .query = { qb, d->heads, q_rows, d->head_dim },
        .key = { kb, d->kv_heads, k_rows, d->head_dim },
        .value = { kb, d->kv_heads, k_rows, d->value_dim },
        .output = { qb, d->heads, q_rows, d->value_dim },
        .query_len = q,
        .key_len = k,
    };
    host_work work = { .attention = attention };
    return run_staged(context, d, &shapes, args, &work, mha_attention_workspace(attention).bytes);
}

mha_status mha_layer_run(mha_layer *layer, const mha_host_args *args)
{
    if (!layer)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = mha_layer_context(layer);
    const mha_layer_desc *desc = mha_layer_shape(layer);
    const mha_attention_desc *d = &desc->attention;
    size_t q = 0, k = 0;
    const mha_status status = check_call(context, "mha_layer_run", d, args, &q, &k);
    if (status)
        return status;
    const host_shapes shapes = {
        .query = { d->batch, 1, q, desc->query_width },
        .key = { d->batch, 1, k, desc->key_width },
        .value = { d->batch, 1, k, desc->value_width },
        .output = { d->batch, 1, q, desc->output_width },
        .query_len = q,
        .key_len = k,
    };
    host_work work = { .layer = layer };
    return run_staged(context, d, &shapes, args, &work, mha_layer_workspace(layer).bytes);
}

mha_status mha_layer_load_host(mha_layer *layer, const mha_layer_host_weights *weights)
{
    if (!layer)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = mha_layer_context(layer);
    if (!weights)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "mha_layer_load_host: weights is NULL");
    const mha_status lost = mha_context_check(context);
    if (lost)
        return lost;
    const mha_layer_desc *desc = mha_layer_shape(layer);
    const mha_attention_desc *d = &desc->attention;
    const bool turned = desc->flags & MHA_LAYER_OUT_IN;
    const size_t bytes = mha_bind_type_bytes(desc->weight_type);
    mha_layer_weights device = { 0 };
    const mha_host_input biases[] = { { weights->bias_query, { 0 } },
                                      { weights->bias_key, { 0 } },
                                      { weights->bias_value, { 0 } },
                                      { weights->bias_output, { 0 } } };
    const struct {
        const char *name, *bias_name;
        const mha_host_input *from;
        mha_tensor *to, *bias;
        size_t in, out;
    } list[] = {
        { "query", "bias_query", &weights->query, &device.query, &device.bias_query,
          desc->query_width, d->heads * d->head_dim },
        { "key", "bias_key", &weights->key, &device.key, &device.bias_key, desc->key_width,
          d->kv_heads * d->head_dim },
        { "value", "bias_value", &weights->value, &device.value, &device.bias_value,
          desc->value_width, d->kv_heads * d->value_dim },
        { "output", "bias_output", &weights->output, &device.output, &device.bias_output,
          d->heads * d->value_dim, desc->output_width },
    };
    staged arrays[8] = { { 0 } };
    mha_status status = MHA_OK;
    for (int i = 0; !status && i < 4; i++) {
        const size_t in = list[i].in, out = list[i].out;
        const bool merged = i == 3 && desc->flags & MHA_LAYER_MERGED_OUTPUT;
        if ((merged && list[i].from->data) || (biases[i].data && !(desc->flags >> i & 1)))
            status =
                mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                             "mha_layer_load_host: weights.%s is given, and the flags say that "
                             "there is none",
                             merged && list[i].from->data ? list[i].name : list[i].bias_name);
        if (status)
            break;
        status = stage_input(context, &arrays[2 * i], list[i].name, list[i].to, list[i].from,
                             (size_t[]){ 1, 1, turned ? out : in, turned ? in : out }, bytes);
        if (!status)
            status = stage_input(context, &arrays[2 * i + 1], list[i].bias_name, list[i].bias,
                                 &biases[i], (size_t[]){ 1, 1, 1, out }, bytes);
    }
    if (!status) {
        const host_work work = { .layer = layer, .weights = &device };
        status = run_queued(context, &work, 0, arrays, 8);
    }
    release(arrays, 8);
    return status;
}
