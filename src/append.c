/* The host of cl/append.cl: new keys and values join a cache, and queries are rotated beside them.
 */
#include "append.h"

#include "grid.h"

#include <stdio.h>

static mha_status set_up(mha_kernel *kernel, mha_context *context, const mha_attention_desc *desc,
                         mha_type from, mha_type to, size_t rotary_dim)
{
    char options[128];
    snprintf(options, sizeof options,
             "-DFROM_TYPE=%d -DTO_TYPE=%d -DROTARY_DIM=%zu -DROTARY_INTERLEAVED=%d", (int)from,
             (int)to, rotary_dim, rotary_dim && desc->rotary_pairs == MHA_ROTARY_INTERLEAVED);
    return mha_context_kernel(context, kernel, "append", options, "append_rows");
}

mha_status mha_append_setup(mha_append_stage *append, mha_context *context,
                            const mha_attention_desc *desc)
{
    const mha_type new_type = desc->new_type, cache = desc->key_value_type;
    const bool rotates = desc->uses & MHA_USES_ROTARY;
    mha_status status =
        set_up(&append->key, context, desc, new_type, cache, rotates ? desc->rotary_dim : 0);
    if (!status)
        status = set_up(&append->value, context, desc, new_type, cache, 0);
    if (!status && rotates)
        status = set_up(&append->query, context, desc, desc->type, desc->type, desc->rotary_dim);
    append->region_bytes = rotates ? desc->batch * desc->heads * desc->query_len * desc->head_dim *
                                         mha_bind_type_bytes(desc->type)
                                   : 0; /* mha_shape_resolve has checked the product */
    return status;
}

void mha_append_release(mha_append_stage *append)
{
    mha_kernel_release(&append->key);
    mha_kernel_release(&append->value);
    mha_kernel_release(&append->query);
}

/* One tensor's rows. */
typedef struct append_rows {
    const char *stage;
    const mha_kernel *kernel;
    const mha_view *from, *to;
    size_t heads, len, dim;
    size_t capacity;
    size_t pairs; /* that are rotated */
    bool moves;   /* to the rows of their positions */
} append_rows;

static mha_status launch(mha_run *run, const mha_attention_desc *desc, const mha_bound *bound,
                         const append_rows *rows)
{
    const mha_view *from = rows->from, *to = rows->to;
    const mha_view *cosine = &bound->rotary_cos, *sine = &bound->rotary_sin;
    const mha_arg args[] = {
        MHA_ARG_MEM(from->buffer),
        MHA_ARG_SIZE(from->offset),
        MHA_ARG_SIZE(from->strides[0]),
        MHA_ARG_SIZE(from->strides[1]),
        MHA_ARG_SIZE(from->strides[2]),
        MHA_ARG_MEM(to->buffer),
        MHA_ARG_SIZE(to->offset),
        MHA_ARG_SIZE(to->strides[0]),
        MHA_ARG_SIZE(to->strides[1]),
        MHA_ARG_SIZE(to->strides[2]),
        MHA_ARG_MEM(bound->positions.buffer),
        MHA_ARG_SIZE(bound->positions.offset),
        MHA_ARG_MEM(cosine->buffer),
        MHA_ARG_SIZE(cosine->offset),
        MHA_ARG_SIZE(cosine->strides[2]),
        MHA_ARG_MEM(sine->buffer),
        MHA_ARG_SIZE(sine->offset),
        MHA_ARG_SIZE(sine->strides[2]),
        MHA_ARG_INT(desc->batch),
        MHA_ARG_INT(rows->heads),
        MHA_ARG_INT(rows->len),
        MHA_ARG_INT(rows->dim),
        MHA_ARG_INT(rows->capacity),
        MHA_ARG_INT(rows->moves),
        MHA_ARG_INT(!!(desc->uses & MHA_USES_RING)),
        MHA_ARG_INT(desc->rotary_positions),
    };
    const mha_grid grid = mha_grid_rows(
        rows->dim - rows->pairs, desc->batch * rows->heads * rows->len, rows->kernel->free_group);
    return mha_run_launch(run, rows->stage, rows->kernel, args, sizeof args / sizeof args[0],
                          &grid);
}

/* The view of the workspace region that takes the rotated queries. */
static mha_view view_region(const mha_run *run, const mha_attention_desc *desc, size_t query_len,
                            size_t region)
{
    const size_t shape[4] = { desc->batch, desc->heads, query_len, desc->head_dim };
    mha_view view = mha_bind_packed(run->workspace, 0, shape);
    view.offset = region / mha_bind_type_bytes(desc->type);
    return view;
}

mha_status mha_append_launch(const mha_append_stage *append, mha_run *run,
                             const mha_attention_desc *desc, mha_bound *bound, size_t region)
{
    const size_t pairs = desc->rotary_dim / 2; /* 0 without MHA_USES_ROTARY */
    const append_rows key = {
        .stage = "append key",
        .kernel = &append->key,
        .from = &bound->new_key,
        .to = &bound->key,
        .heads = desc->kv_heads,
        .len = bound->new_len,
        .dim = desc->head_dim,
        .capacity = bound->key_len,
        .pairs = pairs,
        .moves = true,
    };
    append_rows value = key;
    value.stage = "append value";
    value.kernel = &append->value;
    value.from = &bound->new_value;
    value.to = &bound->value;
    value.dim = desc->value_dim;
    value.pairs = 0;
    if (!desc->batch)
        return MHA_OK;
    mha_run_will_write(run, "key");
    mha_status status = launch(run, desc, bound, &key);
    mha_run_will_write(run, "value");
    if (!status)
        status = launch(run, desc, bound, &value);
    if (status || !pairs)
        return status;
    const mha_view rotated = view_region(run, desc, bound->query_len, region);
    const append_rows query = {
        .stage = "rotate query",
        .kernel = &append->query,
        .from = &bound->query,
        .to = &rotated,
        .heads = desc->heads,
        .len = bound->query_len,
        .dim = desc->head_dim,
        .capacity = bound->query_len,
        .pairs = pairs,
    };
    status = launch(run, desc, bound, &query);
    bound->query = rotated;
    return status;
}
