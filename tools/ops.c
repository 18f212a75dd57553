/* The table of operations, and the passes that a case is run in. */
#include "ops.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *op;
    ops_function *run;
} operations[] = {
    { "sdpa_fwd", ops_sdpa },
    { "sdpa_bwd", ops_sdpa_backward },
    { "sdpa_decode", ops_sdpa_decode },
    { "scaled_dot_product_attention", ops_torch_sdpa },
    { "Attention", ops_onnx_attention },
    { "MultiHeadAttention", ops_multi_head_attention },
    { "GroupQueryAttention", ops_multi_head_attention },
    { "DecoderMaskedMultiHeadAttention", ops_decoder_attention },
    { "SeedMultiHeadAttention", ops_seed_layer },
    { "mha_fwd", ops_plain_layer },
    { "MultiheadAttention", ops_torch_layer },
    { "TransformerEncoderLayer", ops_torch_encoder },
    { "TransformerDecoderLayer", ops_torch_decoder },
    { "gemm_strided_batched", ops_gemm },
    { "split_heads", ops_split_heads },
    { "merge_heads", ops_merge_heads },
    { "Softmax", ops_softmax },
    { "RotaryEmbedding", ops_rotary_embedding },
    { "LayerNormalization", ops_layer_normalization },
    { "RMSNormalization", ops_rms_normalization },
    { "SkipLayerNormalization", ops_skip_layer_normalization },
    { "Gelu", ops_gelu },
    { "gelu_fwd", ops_gelu_forward },
    { "Swish", ops_swish },
    { "SwiGLU", ops_swiglu },
    { "SentenceEmbedding", ops_sentence_embedding },
};

/* Cases that are a list of steps, and the tests of this project that take them. */
static const struct {
    const char *name, *test;
} procedures[] = {
    { "h28_opencl_error_is_reported", "errors/foreign_buffer_is_named" },
    { "h46_threads_share_library", "threads/share_one_context" },
    { "h47_no_opencl_platform", "tools/no_platform" },
};

/* Cases that this program cannot run at all. True: the check has been decided. */
static bool skip_at_once(check *self)
{
    if (!strcmp(self->file->op, "procedure")) {
        for (size_t i = 0; i < sizeof procedures / sizeof procedures[0]; i++)
            if (!strcmp(self->file->name, procedures[i].name))
                check_skip(self, "see test %s", procedures[i].test);
        check_skip(self, "no test is known that takes its steps");
    } else if (!strcmp(case_string(self->file, "expect", "ok"), "property")) {
        check_skip(self, "this program checks no properties yet");
    }
    return check_stopped(self);
}

static void read_expectation(check *self)
{
    const char *const expect = case_string(self->file, "expect", "ok");
    self->expects_error = !strcmp(expect, "error");
    if (!self->expects_error && strcmp(expect, "ok") && strcmp(expect, "property"))
        check_fail(self, "\"%s\" is not ok, error or property", expect);
    /* Keys that check.c reads once the call has been made. */
    case_string(self->file, "same_buffer", NULL);
    case_flag(self->file, "refusal_allowed", false);
}

static void run_pass(check *self)
{
    read_expectation(self);
    if (skip_at_once(self))
        return;
    ops_function *run = NULL;
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
        if (!strcmp(self->file->op, operations[i].op))
            run = operations[i].run;
    if (run)
        run(self);
    else
        check_skip(self, "not in the interface yet");
    if (self->file->error[0])
        check_fail(self, "%s", self->file->error);
    check_finish(self);
}

ops_result ops_run(check_setup *setup, case_file *file)
{
    ops_result result = { 0 };
    bool again = true;
    for (int pass = 0; pass < 2 && again; pass++) {
        check self = { .setup = setup, .file = file, .lengths_on_device = pass == 1 };
        setup->sentence[0] = '\0';
        run_pass(&self);
        result.verdict = self.verdict;
        result.worst = self.worst > result.worst ? self.worst : result.worst;
        snprintf(result.text, sizeof result.text, "%s%s",
                 pass && self.verdict == CHECK_FAILED ? "with lengths in device memory: " : "",
                 self.text);
        memcpy(result.explain, self.explain, sizeof result.explain);
        /* What the host pass says of a case that is skipped in part holds for both. Lengths that
         * are to be refused are told from host memory only: on the device they are clamped. */
        again = self.uses_lengths && !self.expects_error && self.verdict != CHECK_FAILED;
        check_release(&self);
    }
    return result;
}
