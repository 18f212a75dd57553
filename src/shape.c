/* What the shape decides: defaults, rules and sizes of a description. */
#include "shape.h"

#include "log.h"

#include <math.h>

static const uint64_t known_uses =
    MHA_USES_KEY_LENGTHS | MHA_USES_KEY_LENGTHS_PER_QUERY | MHA_USES_BIAS | MHA_USES_MASK |
    MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT | MHA_USES_WINDOW_RIGHT | MHA_USES_PROBS | MHA_USES_LSE |
    MHA_USES_KEY_STARTS | MHA_USES_ALIBI | MHA_USES_SINKS | MHA_USES_SCORES | MHA_USES_APPEND |
    MHA_USES_RING | MHA_USES_ROTARY | MHA_USES_QUERY_OFFSETS | MHA_USES_KEY_OFFSETS |
    MHA_USES_DROPOUT;

mha_size mha_size_of(const size_t *factors, size_t count)
{
    mha_size size = { .value = 1 };
    for (size_t i = 0; i < count; i++) {
        if (factors[i] && size.value > SIZE_MAX / factors[i])
            size.overflows = true;
        size.value *= factors[i];
    }
    return size;
}

bool mha_shape_is_empty(const size_t shape[4])
{
    return !shape[0] || !shape[1] || !shape[2] || !shape[3];
}

void mha_shape_narrow(size_t out[4], const size_t scores[4], unsigned broadcast)
{
    for (int axis = 0; axis < 4; axis++)
        out[axis] = broadcast >> axis & 1 && scores[axis] ? 1 : scores[axis];
}

mha_size mha_shape_reach(const size_t shape[4], const size_t strides[4])
{
    if (mha_shape_is_empty(shape))
        return (mha_size){ 0 };
    if (!strides[0] && !strides[1] && !strides[2] && !strides[3])
        return mha_size_of(shape, 4);
    mha_size reach = { .value = 1 };
    for (int axis = 0; axis < 4; axis++) {
        const mha_size part = mha_size_of((size_t[]){ shape[axis] - 1, strides[axis] }, 2);
        reach.overflows = reach.overflows || part.overflows || reach.value > SIZE_MAX - part.value;
        reach.value += part.value;
    }
    return reach;
}

mha_status mha_shape_check_rows(const mha_log *log, const char *who, size_t rows, size_t width)
{
    if (!width)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: width is 0, it must be at least 1",
                            who);
    if (rows > MHA_MOST_AXIS || width > MHA_MOST_AXIS)
        return mha_log_fail(log, MHA_TOO_LARGE, "%s: %s is %zu, the most is %zu", who,
                            rows > MHA_MOST_AXIS ? "rows" : "width",
                            rows > MHA_MOST_AXIS ? rows : width, MHA_MOST_AXIS);
    return MHA_OK; /* and so the bytes fit a size_t */
}

mha_status mha_shape_check_type(const mha_log *log, const char *who, const char *name,
                                mha_type type)
{
    if (type == MHA_FLOAT32 || type == MHA_FLOAT16 || type == MHA_BFLOAT16)
        return MHA_OK;
    return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: %s is no mha_type: %d", who, name,
                        (int)type);
}

mha_status mha_shape_check_workspace(const mha_context *context, size_t bytes, const char *who)
{
    const uint64_t most = context->device.max_allocation_bytes; /* 0: the driver did not say */
    if (!most || bytes <= most)
        return MHA_OK;
    return mha_log_fail(&context->log, MHA_TOO_LARGE,
                        "%s: the workspace would have %.1f MiB in one buffer, and %s gives at most "
                        "%.1f MiB",
                        who, (double)bytes / 1048576, context->device.name, (double)most / 1048576);
}

size_t mha_layout_add(size_t *end, size_t bytes)
{
    const size_t mask = MHA_LAYOUT_ALIGNMENT - 1;
    const size_t start = *end;
    if (bytes > SIZE_MAX - mask - start) {
        *end = SIZE_MAX;
        return start;
    }
    *end = (start + bytes + mask) & ~mask;
    return start;
}

static mha_status check_axis(const mha_context *context, const char *who, const char *name,
                             size_t size, size_t least)
{
    if (size < least)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: %s is %zu, it must be at least "
                            "%zu",
                            who, name, size, least);
    if (size > MHA_MOST_AXIS)
        return mha_log_fail(&context->log, MHA_TOO_LARGE, "%s: %s is %zu, the most is %zu", who,
                            name, size, MHA_MOST_AXIS);
    return MHA_OK;
}

static mha_status check_axes(const mha_context *context, const mha_attention_desc *desc,
                             const char *who)
{
    const struct {
        const char *name;
        size_t size;
        size_t least;
    } axes[] = {
        { "batch", desc->batch, 0 },         { "heads", desc->heads, 1 },
        { "kv_heads", desc->kv_heads, 1 },   { "query_len", desc->query_len, 0 },
        { "key_len", desc->key_len, 0 },     { "head_dim", desc->head_dim, 1 },
        { "value_dim", desc->value_dim, 1 }, { "rotary_positions", desc->rotary_positions, 0 },
    };
    mha_status status = MHA_OK;
    for (size_t i = 0; !status && i < sizeof axes / sizeof axes[0]; i++)
        status = check_axis(context, who, axes[i].name, axes[i].size, axes[i].least);
    if (status)
        return status;
    if (desc->heads % desc->kv_heads)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: heads is %zu, no multiple of kv_heads, which is %zu", who,
                            desc->heads, desc->kv_heads);
    if (desc->batch && desc->batch > MHA_MOST_AXIS / desc->heads)
        return mha_log_fail(&context->log, MHA_TOO_LARGE,
                            "%s: batch * heads is %zu * %zu, the most is %zu", who, desc->batch,
                            desc->heads, MHA_MOST_AXIS);
    return MHA_OK;
}

static mha_status check_sizes(const mha_context *context, const mha_attention_desc *desc,
                              const char *who)
{
    const size_t rows = desc->batch * desc->heads; /* at most MHA_MOST_AXIS */
    const mha_size scores =
        mha_size_of((size_t[]){ sizeof(float), rows, desc->query_len, desc->key_len }, 4);
    const mha_size query =
        mha_size_of((size_t[]){ sizeof(float), rows, desc->query_len, desc->head_dim }, 4);
    const mha_size output =
        mha_size_of((size_t[]){ sizeof(float), rows, desc->query_len, desc->value_dim }, 4);
    const mha_size key =
        mha_size_of((size_t[]){ sizeof(float), rows, desc->key_len, desc->head_dim }, 4);
    const mha_size value =
        mha_size_of((size_t[]){ sizeof(float), rows, desc->key_len, desc->value_dim }, 4);
    if (scores.overflows || query.overflows || output.overflows || key.overflows || value.overflows)
        return mha_log_fail(&context->log, MHA_TOO_LARGE,
                            "%s: the bytes of a tensor pass the largest size_t", who);
    return MHA_OK;
}

static mha_status check_types(const mha_context *context, const mha_attention_desc *desc,
                              const char *who)
{
    const struct {
        const char *name;
        mha_type type;
    } types[] = {
        { "type", desc->type },
        { "key_value_type", desc->key_value_type },
        { "bias_type", desc->bias_type },
        { "output_type", desc->output_type },
        { "scores_type", desc->scores_type },
        { "new_type", desc->new_type },
    };
    mha_status status = MHA_OK;
    for (size_t i = 0; !status && i < sizeof types / sizeof types[0]; i++)
        status = mha_shape_check_type(&context->log, who, types[i].name, types[i].type);
    return status;
}

static mha_status check_exclusions(const mha_context *context, const mha_attention_desc *desc,
                                   const char *who)
{
    const mha_log *log = &context->log;
    const uint64_t diagonal_uses = desc->uses & (MHA_USES_CAUSAL | MHA_USES_WINDOW_LEFT |
                                                 MHA_USES_WINDOW_RIGHT | MHA_USES_ALIBI);
    const unsigned all_axes = MHA_AXIS_BATCH | MHA_AXIS_HEADS | MHA_AXIS_QUERY | MHA_AXIS_KEY;
    if (desc->uses & ~known_uses)
        return mha_log_fail(log, MHA_UNSUPPORTED, "%s: uses has unknown bits: 0x%llx", who,
                            (unsigned long long)(desc->uses & ~known_uses));
    if (desc->diagonal < MHA_DIAGONAL_NONE || desc->diagonal > MHA_AFTER_PAST)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: diagonal is no mha_diagonal: %d", who,
                            (int)desc->diagonal);
    if (diagonal_uses && desc->diagonal == MHA_DIAGONAL_NONE)
        return mha_log_fail(
            log, MHA_INVALID_ARGUMENT,
            "%s: causal, a window or ALiBi is used, so diagonal must be MHA_TOP_LEFT, "
            "MHA_BOTTOM_RIGHT or MHA_AFTER_PAST",
            who);
    if (!diagonal_uses && desc->diagonal != MHA_DIAGONAL_NONE)
        return mha_log_fail(
            log, MHA_INVALID_ARGUMENT,
            "%s: diagonal is set, but uses has neither MHA_USES_CAUSAL nor a window nor MHA_USES_ALIBI",
            who);
    if ((desc->window_left && !(desc->uses & MHA_USES_WINDOW_LEFT)) ||
        (desc->window_right && !(desc->uses & MHA_USES_WINDOW_RIGHT)))
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: a window limit is set without its MHA_USES_WINDOW bit", who);
    if ((desc->bias_broadcast | desc->mask_broadcast) & ~all_axes)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: a broadcast has unknown axes", who);
    if ((desc->bias_broadcast && !(desc->uses & MHA_USES_BIAS)) ||
        (desc->mask_broadcast && !(desc->uses & MHA_USES_MASK)))
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: broadcast axes are set for a bias or mask that uses does not name",
                            who);
    if (!isfinite(desc->softcap) || desc->softcap < 0)
        return mha_log_fail(log, MHA_INVALID_ARGUMENT,
                            "%s: softcap is %g, it must be 0 (none) or above", who,
                            (double)desc->softcap);
    if (!isfinite(desc->scale))
        return mha_log_fail(log, MHA_INVALID_ARGUMENT, "%s: scale is %g, it must be finite", who,
                            (double)desc->scale);
    return MHA_OK;
}

bool mha_shape_fits_ring(const mha_attention_desc *desc, size_t query_len, size_t key_len)
{
    return desc->window_left <= key_len && query_len <= key_len - desc->window_left;
}

/* Whose axis of keys a ring does not turn. */
static const uint64_t not_with_ring = MHA_USES_BIAS | MHA_USES_MASK | MHA_USES_KEY_STARTS |
                                      MHA_USES_KEY_LENGTHS | MHA_USES_KEY_LENGTHS_PER_QUERY |
                                      MHA_USES_PROBS | MHA_USES_SCORES | MHA_USES_DROPOUT;

/* The rules of caches, rotary positions and offsets. */
static mha_status check_cache(const mha_context *context, const mha_attention_desc *desc,
                              const char *who)
{
    const uint64_t uses = desc->uses;
    const bool appends = uses & MHA_USES_APPEND, rotates = uses & MHA_USES_ROTARY;
    const bool rings = uses & MHA_USES_RING;
    const struct {
        bool broken;
        mha_status status;
        const char *rule;
    } rules[] = {
        { !appends && desc->new_len, MHA_INVALID_ARGUMENT,
          "new_len is set without MHA_USES_APPEND" },
        { appends && !desc->new_len, MHA_INVALID_ARGUMENT,
          "new_len is 0, and MHA_USES_APPEND says that new keys come" },
        { appends && desc->new_len > desc->key_len, MHA_INVALID_ARGUMENT,
          "new_len is above key_len: the new keys do not fit the cache" },
        { appends && uses & (MHA_USES_QUERY_OFFSETS | MHA_USES_KEY_OFFSETS), MHA_UNSUPPORTED,
          "a cache (MHA_USES_APPEND) has a row for each batch and takes no offsets" },
        { desc->diagonal == MHA_AFTER_PAST && (!appends || uses & MHA_USES_KEY_LENGTHS),
          MHA_INVALID_ARGUMENT,
          "MHA_AFTER_PAST goes with MHA_USES_APPEND, and without MHA_USES_KEY_LENGTHS" },
        { (rings || rotates) && !appends, MHA_INVALID_ARGUMENT,
          "MHA_USES_RING and MHA_USES_ROTARY go with MHA_USES_APPEND; mha_rotary rotates other "
          "tensors" },
        { rings && uses & not_with_ring, MHA_UNSUPPORTED,
          "a ring takes no bias, mask, starts, lengths, dropout, probs or scores, whose axis of "
          "keys would have to go round as well" },
        { rings && (!(uses & MHA_USES_WINDOW_LEFT) || desc->diagonal != MHA_BOTTOM_RIGHT),
          MHA_INVALID_ARGUMENT,
          "a ring needs MHA_USES_WINDOW_LEFT and MHA_BOTTOM_RIGHT, so that what it overwrites is "
          "seen by no query" },
        { rings && !mha_shape_fits_ring(desc, 1, desc->key_len), MHA_INVALID_ARGUMENT,
          "a ring needs a key_len of at least window_left + query_len, so that what it overwrites "
          "is seen by no query" },
        { rotates &&
              (desc->rotary_dim % 2 || desc->rotary_dim > desc->head_dim || !desc->rotary_dim),
          MHA_INVALID_ARGUMENT, "rotary_dim must be even, and at most head_dim" },
        { rotates && !desc->rotary_positions, MHA_INVALID_ARGUMENT,
          "rotary_positions must be the rows of the tables, at least 1" },
        { rotates && desc->rotary_pairs != MHA_ROTARY_HALVES &&
              desc->rotary_pairs != MHA_ROTARY_INTERLEAVED,
          MHA_INVALID_ARGUMENT, "rotary_pairs is no mha_rotary_pairs" },
        { !rotates && (desc->rotary_dim || desc->rotary_positions || desc->rotary_pairs),
          MHA_INVALID_ARGUMENT, "a field of rotary positions is set without MHA_USES_ROTARY" },
        { !(uses & MHA_USES_DROPOUT) && desc->dropout_p != 0, MHA_INVALID_ARGUMENT,
          "dropout_p is set without MHA_USES_DROPOUT" },
        { !(desc->dropout_p >= 0 && desc->dropout_p < 1), MHA_INVALID_ARGUMENT,
          "dropout_p must be from 0 to below 1" },
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].broken)
            return mha_log_fail(&context->log, rules[i].status, "%s: %s", who, rules[i].rule);
    return MHA_OK;
}

mha_status mha_shape_resolve(mha_context *context, const mha_attention_desc *desc, const char *who,
                             mha_attention_desc *out)
{
    *out = *desc;
    if (!out->kv_heads)
        out->kv_heads = out->heads;
    if (!out->value_dim)
        out->value_dim = out->head_dim;
    if (!out->type)
        out->type = MHA_FLOAT32;
    if (!out->key_value_type)
        out->key_value_type = out->type;
    if (!out->bias_type)
        out->bias_type = out->type;
    if (!out->output_type)
        out->output_type = out->type;
    if (!out->scores_type)
        out->scores_type = MHA_FLOAT32;
    if (!out->new_type)
        out->new_type = out->type;
    if (!out->rotary_dim && out->uses & MHA_USES_ROTARY)
        out->rotary_dim = out->head_dim;

    mha_status status = check_axes(context, out, who);
    if (!status)
        status = check_types(context, out, who);
    if (!status)
        status = check_exclusions(context, out, who);
    if (!status)
        status = check_cache(context, out, who);
    if (!status)
        status = check_sizes(context, out, who);
    if (status)
        return status;
    if (out->path < MHA_PATH_DEFAULT || out->path > MHA_PATH_DECODE)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: path is no mha_path: %d", who,
                            (int)out->path);
    if (out->tiling < MHA_TILING_DEFAULT || out->tiling > MHA_TILING_GPU)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: tiling is no mha_tiling: %d",
                            who, (int)out->tiling);
    if (out->scores_stage < MHA_SCORES_SCALED || out->scores_stage > MHA_SCORES_BIASED)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT,
                            "%s: scores_stage is no mha_scores_stage: %d", who,
                            (int)out->scores_stage);
    if (out->gemm < MHA_GEMM_DEFAULT || out->gemm > MHA_GEMM_KERNEL)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: gemm is no mha_gemm_by: %d",
                            who, (int)out->gemm);
    if (out->scale == 0)
        out->scale = (float)(1 / sqrt((double)out->head_dim));
    return MHA_OK;
}
