/* Operations that are one step of an attention. */
#include "ops.h"

#include <string.h>

static size_t read_size(check *self, const char *key)
{
    const long size = case_int(self->file, key, -1);
    if (size < 0)
        check_fail(self, "%s is missing or below 0", key);
    return size < 0 ? 0 : (size_t)size;
}

/* Has the tensor of that name this rank? Else the check fails. */
static bool need_rank(check *self, const char *name, unsigned rank)
{
    const case_tensor *const tensor = check_need(self, name);
    if (tensor && tensor->rank != rank)
        check_fail(self, "%s has not %u axes", name, rank);
    return !check_stopped(self);
}

static mha_matrix bind_matrix(check *self, const char *name, const char *stride,
                              const char *batch_stride, mha_type *type)
{
    const case_tensor *const tensor = check_need(self, name);
    if (tensor)
        *type = check_type(self, tensor->type);
    const mha_tensor place = check_input(self, tensor);
    return (mha_matrix){
        .buffer = place.buffer,
        .offset = place.offset,
        .row_stride = read_size(self, stride),
        .batch_stride = read_size(self, batch_stride),
    };
}

void ops_gemm(check *self)
{
    if (strcmp(case_string(self->file, "layout", "row_major"), "row_major"))
        check_skip(self, "the interface is row-major");
    const double alpha = case_float(self->file, "alpha", 1);
    if (alpha == 0)
        check_skip(self, "the interface takes an alpha of 0 as its default");
    mha_gemm_desc desc = {
        .m = read_size(self, "m"),
        .n = read_size(self, "n"),
        .k = read_size(self, "k"),
        .batch = read_size(self, "batch"),
        .flags = (case_flag(self->file, "trans_a", false) ? MHA_GEMM_TRANSPOSE_A : 0) |
                 (case_flag(self->file, "trans_b", false) ? MHA_GEMM_TRANSPOSE_B : 0),
        .alpha = (float)alpha,
        .beta = (float)case_float(self->file, "beta", 0),
        .by = self->setup->gemm,
    };
    mha_gemm_args args = {
        .a = bind_matrix(self, "a", "lda", "stride_a", &desc.type),
        .b = bind_matrix(self, "b", "ldb", "stride_b", &desc.b_type),
        .c = bind_matrix(self, "c", "ldc", "stride_c", &desc.c_type),
    };
    const case_tensor *const c = case_input(self->file, "c");
    if (c)
        check_output(self, "c", c->type, c->count, 1);
    if (!check_ready(self))
        return;
    mha_gemm *gemm = NULL;
    check_status(self, mha_gemm_create(&gemm, self->setup->context, &desc), "mha_gemm_create");
    if (gemm) {
        const mha_call call = check_call(self, mha_gemm_workspace(gemm));
        if (!check_stopped(self))
            check_status(self, mha_gemm_enqueue(gemm, &args, &call), "mha_gemm_enqueue");
    }
    mha_gemm_destroy(&gemm);
}

static void run_heads(check *self, const mha_heads_desc *desc, bool split, const mha_tensor *from,
                      const mha_tensor *to)
{
    if (!check_ready(self))
        return;
    const mha_call call = { .queue = self->setup->queue };
    mha_heads *heads = NULL;
    check_status(self, mha_heads_create(&heads, self->setup->context, desc), "mha_heads_create");
    if (heads && split)
        check_status(self, mha_heads_split_enqueue(heads, from, to, &call),
                     "mha_heads_split_enqueue");
    else if (heads)
        check_status(self, mha_heads_merge_enqueue(heads, from, to, &call),
                     "mha_heads_merge_enqueue");
    mha_heads_destroy(&heads);
}

/* An output with as many elements as the input, both float32. */
static mha_tensor give_like(check *self, const char *name, const case_tensor *input)
{
    if (input->type != CASE_FLOAT32)
        check_skip(self, "%s is not a type that this step takes", case_type_name(input->type));
    return check_output(self, name, CASE_FLOAT32, input->count, 1);
}

void ops_split_heads(check *self)
{
    const size_t heads = read_size(self, "heads");
    case_string(self->file, "layout", NULL);
    if (!need_rank(self, "x", 3))
        return;
    const case_tensor *const x = case_input(self->file, "x");
    if (!heads || x->shape[2] % heads || x->strided) {
        check_fail(self, "x cannot be seen as %zu heads", heads);
        return;
    }
    const mha_heads_desc desc = {
        .batch = x->shape[0], .heads = heads, .len = x->shape[1], .dim = x->shape[2] / heads
    };
    const mha_tensor merged = check_input(self, x), split = give_like(self, "y", x);
    run_heads(self, &desc, true, &merged, &split);
}

void ops_merge_heads(check *self)
{
    case_string(self->file, "layout", NULL);
    if (!need_rank(self, "x", 4))
        return;
    const case_tensor *const x = case_input(self->file, "x");
    const mha_heads_desc desc = {
        .batch = x->shape[0], .heads = x->shape[1], .len = x->shape[2], .dim = x->shape[3]
    };
    const mha_tensor split = check_input(self, x), merged = give_like(self, "y", x);
    run_heads(self, &desc, false, &split, &merged);
}

static void enqueue_softmax(check *self, const mha_attention_desc *desc, const mha_tensor *scores,
                            const mha_tensor *probs)
{
    const mha_attention_args args = { .probs = *probs };
    mha_softmax *softmax = NULL;
    check_status(self, mha_softmax_create(&softmax, self->setup->context, desc),
                 "mha_softmax_create");
    if (softmax) {
        const mha_call call = check_call(self, mha_softmax_workspace(softmax));
        if (!check_stopped(self))
            check_status(self, mha_softmax_enqueue(softmax, scores, &args, &call),
                         "mha_softmax_enqueue");
    }
    mha_softmax_destroy(&softmax);
}

/* The packed tensor is [outer][keys][inner]. The softmax takes rows of keys, so where inner is not
 * 1 they are split as if they were heads of one element, and merged again. */
void ops_softmax(check *self)
{
    const case_tensor *const x = check_need(self, "x");
    const long given = case_int(self->file, "axis", -1);
    if (!x)
        return;
    const long axis = given < 0 ? given + (long)x->rank : given;
    if (axis < 0 || axis >= (long)x->rank)
        check_fail(self, "%s has no axis %ld", x->name, given);
    else if (x->strided)
        check_skip(self, "this program takes a packed %s only", x->name);
    if (check_stopped(self))
        return;
    size_t outer = 1, inner = 1;
    for (unsigned i = 0; i < x->rank; i++)
        if ((long)i != axis)
            *((long)i < axis ? &outer : &inner) *= x->shape[i];
    const mha_heads_desc heads = {
        .batch = outer, .heads = inner, .len = x->shape[axis], .dim = 1
    };
    const mha_attention_desc desc = { .batch = 1,
                                      .heads = 1,
                                      .query_len = outer * inner,
                                      .key_len = x->shape[axis],
                                      .uses = MHA_USES_PROBS };
    const mha_tensor scores = check_input(self, x), y = give_like(self, "y", x);
    mha_tensor rows = { 0 };
    if (inner != 1)
        rows = check_made_output(self, "the rows", CASE_FLOAT32, NULL, x->count);
    if (inner != 1)
        run_heads(self, &heads, true, &scores, &rows);
    if (check_ready(self))
        enqueue_softmax(self, &desc, inner != 1 ? &rows : &scores, inner != 1 ? &rows : &y);
    if (inner != 1)
        run_heads(self, &heads, false, &rows, &y);
}
