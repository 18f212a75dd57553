/* What an encoder or decoder layer does in a call: norm and branch, step by step. */
#include "block.h"
#include "log.h"
#include "shape.h"

typedef struct forward {
    size_t len, rows;
    mha_view input, output;           /* rows of the caller */
    mha_view memory;                  /* [batch][1][key_len][key_width] */
    mha_view branch, stream;          /* rows in the workspace */
    const mha_view *entry;            /* the input in float32: itself, or the stream */
    mha_bound bound[MHA_BLOCK_STEPS]; /* of the attentions */
} forward;

/* What a block gives its attention itself. */
static mha_status check_empty(const mha_block *block, const char *who,
                              const mha_attention_args *args, bool appends, bool is_cross)
{
    const mha_block_own list[] = {
        { "query", args->query.buffer },
        { "output", args->output.buffer },
        { "new_key", args->new_key.buffer },
        { "new_value", args->new_value.buffer },
        { "key", args->key.buffer && !appends },
        { "value", args->value.buffer && !appends },
        { "query_len", args->query_len },
        { "new_len", args->new_len },
        { "key_len", args->key_len && !appends && !is_cross },
    };
    return mha_block_check_own(block, who, list, sizeof list / sizeof list[0]);
}

static mha_status bind_attention(const mha_block *block, const mha_run *run, const char *caller,
                                 int step, const mha_attention_args *given, forward *f)
{
    char text[MHA_BLOCK_WHO];
    const char *who = mha_block_say(text, caller, step);
    const mha_layer *layer = block->steps[step].layer;
    const bool appends = layer->desc.attention.uses & MHA_USES_APPEND;
    const mha_status status = check_empty(block, who, given, appends, step == MHA_BLOCK_CROSS);
    if (status)
        return status;
    mha_attention_args args = *given;
    args.query_len = f->len;
    if (appends)
        args.new_len = f->len;
    else if (step == MHA_BLOCK_SELF)
        args.key_len = f->len;
    return mha_layer_take_options(layer, run, &f->bound[step], who, &args);
}

static mha_status bind_rows(const mha_block *block, const mha_run *run, const char *who,
                            const mha_block_args *args, forward *f)
{
    const size_t shape[4] = { 1, 1, f->rows, block->width };
    mha_status status = mha_bind_tensor(run, &f->input, who, "input", args->input, shape,
                                        mha_bind_type_bytes(block->type), MHA_READS);
    if (!status)
        status = mha_bind_tensor(run, &f->output, who, "output", args->output, shape,
                                 mha_bind_type_bytes(block->output_type), MHA_WRITES);
    if (status || !args->memory)
        return status;
    const mha_layer *layer = block->steps[MHA_BLOCK_CROSS].layer;
    const mha_layer_desc *cross = &layer->desc;
    return mha_bind_tensor(
        run, &f->memory, who, "memory", args->memory,
        (size_t[]){ block->batch, 1, f->bound[MHA_BLOCK_CROSS].key_len, cross->key_width },
        mha_bind_type_bytes(mha_layer_key_type(layer)), MHA_READS);
}

/* All that the call reads and writes, of both attentions. */
static mha_status check_overlap(const mha_run *run, const char *who, const forward *f)
{
    enum {
        MOST = 3 + 2 * MHA_BOUND_VIEWS
    };
    const mha_view *views[MOST] = { &f->output, &f->input, &f->memory };
    const char *names[MOST] = { "output", "input", "memory" };
    mha_access accesses[MOST] = { MHA_WRITES, MHA_READS, MHA_READS };
    mha_bound_list lists[2];
    size_t count = 3;
    for (int i = 0; i < 2; i++) {
        mha_bound_list_views(&f->bound[MHA_BLOCK_SELF + i], "query", &lists[i]);
        for (int k = 0; k < MHA_BOUND_VIEWS; k++, count++) {
            views[count] = lists[i].views[k];
            names[count] = lists[i].names[k];
            accesses[count] = lists[i].accesses[k];
        }
    }
    return mha_bind_apart(run, who, views, names, accesses, count);
}

/* Rows as tokens of their sequences. */
static mha_view tokens_of(const mha_block *block, const forward *f, const mha_view *rows)
{
    mha_view view = *rows;
    const size_t row = f->rows > 1 ? rows->strides[2] : block->width;
    view.strides[0] = f->len * row;
    view.strides[2] = row;
    return view;
}

static mha_status run_branch(mha_block *block, mha_run *run, forward *f, int step,
                             const mha_view *from, size_t region)
{
    mha_block_step *s = &block->steps[step];
    if (s->ffn) {
        const mha_operand in = mha_projection_rows(from, f->rows, block->width);
        const mha_operand out = mha_projection_rows(&f->branch, f->rows, block->width);
        return mha_ffn_forward(s->ffn, run, f->rows, &in, &out, region, NULL);
    }
    const mha_view tokens = tokens_of(block, f, from);
    const bool is_cross = step == MHA_BLOCK_CROSS;
    const mha_layer_views views = { .query = tokens,
                                    .key = is_cross ? f->memory : tokens,
                                    .value = is_cross ? f->memory : tokens,
                                    .output = tokens_of(block, f, &f->branch) };
    return mha_layer_forward(s->layer, run, &views, &f->bound[step], region, NULL);
}

/* output = norm(input + residual), with the weights of a step; residual and sum may be NULL. */
static mha_status run_norm(const mha_block *block, mha_run *run, const forward *f, int step,
                           const mha_view *input, const mha_view *residual, const mha_view *output,
                           const mha_view *sum)
{
    const bool ends = output == &f->output;
    const mha_norm_desc *desc = ends       ? &block->last_desc
                                : residual ? &block->joined_desc
                                           : &block->first_desc;
    const cl_mem weights = block->steps[step].norm;
    const mha_view none = { 0 };
    const mha_norm_rows rows = {
        .rows = f->rows,
        .input = *input,
        .residual = residual ? *residual : none,
        .weight = desc->uses & MHA_NORM_WEIGHT ? (mha_view){ .buffer = weights } : none,
        .bias = desc->uses & MHA_NORM_BIAS ? (mha_view){ .buffer = weights, .offset = block->width }
                                           : none,
        .output = *output,
        .sum = sum ? *sum : none,
    };
    return mha_norm_launch(ends       ? &block->last
                           : residual ? &block->joined
                                      : &block->first,
                           run, desc, &rows);
}

/* The step after this one, MHA_BLOCK_STEPS behind the last. */
static int next_step(const mha_block *block, int step)
{
    do
        step++;
    while (step < MHA_BLOCK_STEPS && !block->steps[step].exists);
    return step;
}

static mha_status forward_norms_after(mha_block *block, mha_run *run, forward *f, size_t region)
{
    const mha_view *rows = f->entry;
    mha_status status = MHA_OK;
    for (int i = next_step(block, -1); !status && i < MHA_BLOCK_STEPS; i = next_step(block, i)) {
        const bool is_last = next_step(block, i) == MHA_BLOCK_STEPS;
        const mha_view *to = is_last ? &f->output : &f->stream;
        status = run_branch(block, run, f, i, rows, region);
        mha_run_will_write(run, is_last && !status ? "output" : NULL);
        if (!status)
            status = run_norm(block, run, f, i, &f->branch, rows, to, NULL);
        rows = to;
    }
    return status;
}

/* A branch takes its normed rows from where it puts its own: what it reads is read by then. */
static mha_status forward_norms_before(mha_block *block, mha_run *run, forward *f, size_t region)
{
    const mha_view *rows = f->entry;
    int i = next_step(block, -1);
    mha_status status = run_norm(block, run, f, i, rows, NULL, &f->branch, NULL);
    while (!status) {
        status = run_branch(block, run, f, i, &f->branch, region);
        i = next_step(block, i);
        if (status || i == MHA_BLOCK_STEPS)
            break;
        status = run_norm(block, run, f, i, &f->branch, rows, &f->branch, &f->stream);
        rows = &f->stream;
    }
    if (status)
        return status;
    mha_run_will_write(run, "output");
    return mha_add_launch(&block->add, run, f->rows, block->width, rows, &f->branch, &f->output);
}

/* The input into the stream. */
static mha_status enter(const mha_block *block, mha_run *run, const forward *f)
{
    const mha_operand from = mha_projection_rows(&f->input, f->rows, block->width);
    const mha_operand to = mha_projection_rows(&f->stream, f->rows, block->width);
    return mha_convert_launch(&block->enter, run, 1, f->rows, block->width, &from, &to);
}

static mha_status run_forward(mha_block *block, mha_run *run, forward *f)
{
    size_t region = 0;
    mha_layout_add(&region, block->needs.temp_bytes);
    const size_t shape[4] = { 1, 1, f->rows, block->width };
    f->branch = mha_bind_packed(run->workspace, region + block->branch_region, shape);
    f->stream = mha_bind_packed(run->workspace, region + block->stream_region, shape);
    f->entry = block->type == MHA_FLOAT32 ? &f->input : &f->stream;
    mha_status status = f->rows && f->entry == &f->stream ? enter(block, run, f) : MHA_OK;
    if (status || !f->rows)
        return status;
    return block->norm_first ? forward_norms_before(block, run, f, region)
                             : forward_norms_after(block, run, f, region);
}

static mha_status bind_all(const mha_block *block, const mha_run *run, const char *who,
                           const mha_block_args *args, forward *f)
{
    mha_status status = mha_block_take_len(block, who, args->len, &f->len);
    f->rows = block->batch * f->len;
    if (!status)
        status = bind_attention(block, run, who, MHA_BLOCK_SELF, args->self, f);
    if (!status && args->cross)
        status = bind_attention(block, run, who, MHA_BLOCK_CROSS, args->cross, f);
    if (!status)
        status = bind_rows(block, run, who, args, f);
    return status ? status : check_overlap(run, who, f);
}

mha_status mha_block_enqueue(mha_block *block, const mha_block_args *args, const mha_call *call,
                             const char *who)
{
    mha_context *context = block->context;
    const mha_status lost = mha_context_check(context, who);
    if (lost)
        return lost;
    mha_status status = mha_block_check_loaded(block, who);
    if (status)
        return status;
    mha_run run;
    forward f = { 0 };
    status = mha_run_begin(&run, context, call, who, mha_block_workspace(block).bytes);
    if (status)
        return mha_context_note(context, status);
    status = bind_all(block, &run, who, args, &f);
    if (!status)
        status = mha_run_wait(&run);
    if (!status)
        status = run_forward(block, &run, &f);
    return mha_run_end(&run, status);
}
