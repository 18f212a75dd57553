/* The weights of encoder and decoder layers. */
#include "block.h"
#include "log.h"

typedef struct load_views {
    mha_layer_load_views layers[MHA_BLOCK_STEPS];
    mha_ffn_load_views ffns[MHA_BLOCK_STEPS];
    mha_view norms[MHA_BLOCK_STEPS][2]; /* weight and bias */
} load_views;

static mha_status bind_norm(const mha_block *block, const mha_run *run, const char *who,
                            const mha_norm_weights *weights, mha_view views[2])
{
    static const mha_norm_weights none = { 0 };
    const mha_norm_weights *given = weights ? weights : &none;
    const struct {
        const char *name;
        const mha_tensor *tensor;
        unsigned bit;
    } list[] = {
        { "norm.weight", &given->weight, MHA_NORM_WEIGHT },
        { "norm.bias", &given->bias, MHA_NORM_BIAS },
    };
    mha_status status = MHA_OK;
    for (int i = 0; !status && i < 2; i++) {
        const bool used = block->first_desc.uses & list[i].bit;
        if (used != !!list[i].tensor->buffer)
            status = mha_log_fail(&run->context->log, MHA_INVALID_ARGUMENT,
                                  used ? "%s: weights of %s are not given, and norm.uses says that "
                                         "there are some"
                                       : "%s: weights of %s are given, and norm.uses says that "
                                         "there are none",
                                  who, list[i].name);
        else if (used)
            status = mha_bind_tensor(
                run, &views[i], who, list[i].name,
                &(mha_tensor){ list[i].tensor->buffer, list[i].tensor->offset, { 0 } },
                (size_t[]){ 1, 1, 1, block->width }, mha_bind_type_bytes(block->norm_type),
                MHA_READS);
    }
    return status;
}

/* Whether weights are given of what a step that there is not would have. */
static bool gives_any(const mha_block_weights *weights, int step)
{
    const mha_norm_weights *norm = weights->norms[step];
    const mha_ffn_weights *ffn = weights->ffns[step];
    return (norm && (norm->weight.buffer || norm->bias.buffer)) ||
           (ffn && (ffn->hidden.buffer || ffn->gate.buffer || ffn->output.buffer ||
                    ffn->bias_hidden.buffer || ffn->bias_gate.buffer || ffn->bias_output.buffer));
}

static mha_status bind_weights(const mha_block *block, const mha_run *run, const char *caller,
                               const mha_block_weights *weights, load_views *views)
{
    mha_status status = MHA_OK;
    for (int i = 0; !status && i < MHA_BLOCK_STEPS; i++) {
        const mha_block_step *step = &block->steps[i];
        char text[MHA_BLOCK_WHO];
        const char *who = mha_block_say(text, caller, i);
        status = mha_block_check_step(block, who, i, gives_any(weights, i));
        if (status || !step->exists)
            continue;
        status = step->layer
                     ? mha_layer_bind_weights(step->layer, run, who, weights->layers[i],
                                              &views->layers[i])
                     : mha_ffn_bind_weights(step->ffn, run, who, weights->ffns[i], &views->ffns[i]);
        if (!status)
            status = bind_norm(block, run, who, weights->norms[i], views->norms[i]);
    }
    return status;
}

static mha_status copy_weights(mha_block *block, mha_run *run, const load_views *views)
{
    const size_t shape[4] = { 1, 1, 1, block->width };
    mha_status status = MHA_OK;
    for (int i = 0; !status && i < MHA_BLOCK_STEPS; i++) {
        const mha_block_step *step = &block->steps[i];
        if (!step->exists)
            continue;
        status = step->layer ? mha_layer_copy_weights(step->layer, run, &views->layers[i])
                             : mha_ffn_copy_weights(step->ffn, run, &views->ffns[i]);
        for (size_t k = 0; !status && k < 2; k++) {
            const mha_view *from = &views->norms[i][k];
            mha_heads_copy row = { .shape = { 1, 1, 1, block->width }, .from = *from };
            row.to = mha_bind_packed(step->norm, k * block->width * sizeof(float), shape);
            if (from->buffer)
                status = mha_heads_launch(&block->copy, run, "load norm", &row);
        }
    }
    return status;
}

mha_status mha_block_load(mha_block *block, const mha_block_weights *weights, const mha_call *call,
                          const char *who)
{
    mha_run run;
    load_views views = { 0 };
    mha_status status = mha_run_begin(&run, block->context, call, who, 0);
    if (status)
        return mha_context_note(block->context, status);
    status = bind_weights(block, &run, who, weights, &views);
    if (!status)
        status = mha_run_wait(&run);
    if (!status) {
        mha_run_will_write(&run, "the weights");
        status = copy_weights(block, &run, &views);
        mha_run_note_load(&run, status, &block->loaded);
    }
    return mha_run_end(&run, status);
}
