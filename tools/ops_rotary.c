/* ONNX's RotaryEmbedding. */
#include "ops.h"

#include <string.h>

/* The input's shape as [batch][heads][len][dim], and the strides of that in `strides`, all 0 where
 * it is packed so. BHSD: the heads have an axis of their own; BSE: they lie in the last one. */
static void read_shape(check *self, const case_tensor *input, mha_rotary_desc *desc,
                       size_t strides[4])
{
    const char *const layout = case_string(self->file, "layout", "BHSD");
    const long num_heads = case_int(self->file, "num_heads", 0);
    const long len = case_int(self->file, "seq_len", -1);
    const size_t heads = num_heads > 0 ? (size_t)num_heads : 0;
    const bool apart = !strcmp(layout, "BHSD");
    memset(strides, 0, 4 * sizeof strides[0]);
    if (!apart && strcmp(layout, "BSE"))
        check_fail(self, "the layout %s is neither BHSD nor BSE", layout);
    else if (input->rank != (apart ? 4u : 3u))
        check_fail(self, "%s has %u axes in the layout %s", input->name, input->rank, layout);
    else if (!heads || (apart ? input->shape[1] != heads : input->shape[2] % heads))
        check_fail(self, "%s cannot be seen as %ld heads", input->name, num_heads);
    else if (input->strided)
        check_skip(self, "this program takes a packed %s only", input->name);
    if (check_stopped(self))
        return;
    desc->batch = input->shape[0];
    desc->heads = heads;
    desc->len = input->shape[apart ? 2 : 1];
    desc->dim = apart ? input->shape[3] : input->shape[2] / heads;
    if (len >= 0 && (size_t)len != desc->len)
        check_fail(self, "%s has %zu rows, not seq_len", input->name, desc->len);
    if (apart)
        return;
    strides[0] = desc->len * heads * desc->dim;
    strides[1] = desc->dim;
    strides[2] = heads * desc->dim;
    strides[3] = 1;
}

/* A table [position][dim / 2], or without position ids [batch][len][dim / 2]. */
static mha_tensor bind_table(check *self, const char *name, const mha_rotary_desc *desc,
                             size_t *rows)
{
    const case_tensor *const table = check_need(self, name);
    if (!table)
        return (mha_tensor){ 0 };
    const unsigned rank = *rows ? 2 : 3;
    const size_t half = (desc->rotary_dim ? desc->rotary_dim : desc->dim) / 2;
    if (table->type != CASE_FLOAT32)
        check_skip(self, "%s is not float32, which the interface's tables are", name);
    else if (table->rank != rank || table->shape[rank - 1] != half ||
             (rank == 3 && (table->shape[0] != desc->batch || table->shape[1] != desc->len)))
        check_fail(self, "%s has not the shape of a table for these rows", name);
    else if (*rows)
        *rows = table->shape[0];
    mha_tensor place = check_input(self, table);
    if (table->strided && rank == 3) { /* [batch][len][dim / 2] has an axis of heads here */
        place.strides[0] = table->strides[0];
        place.strides[1] = 0;
    }
    return place;
}

static void enqueue(check *self, const mha_rotary_desc *desc, const mha_rotary_args *args)
{
    mha_rotary *rotary = NULL;
    check_status(self, mha_rotary_create(&rotary, self->setup->context, desc), "mha_rotary_create");
    if (rotary) {
        const mha_call call = check_call(self, mha_rotary_workspace(rotary));
        if (!check_stopped(self))
            check_status(self, mha_rotary_enqueue(rotary, args, &call), "mha_rotary_enqueue");
    }
    mha_rotary_destroy(&rotary);
}

void ops_rotary_embedding(check *self)
{
    const case_tensor *const input = check_need(self, "input");
    const case_tensor *const ids = case_input(self->file, "position_ids");
    const bool has_ids = case_flag(self->file, "has_position_ids", ids != NULL);
    const long rotary_dim = case_int(self->file, "rotary_embedding_dim", 0);
    if (!input)
        return;
    if (rotary_dim < 0)
        check_fail(self, "rotary_embedding_dim is below 0");
    if (has_ids != (ids != NULL))
        check_fail(self, "has_position_ids and the inputs differ");
    const case_type output_type = check_output_type(self, "output", input->type);
    mha_rotary_desc desc = {
        .rotary_dim = rotary_dim > 0 ? (size_t)rotary_dim : 0,
        .pairs = case_flag(self->file, "interleaved", false) ? MHA_ROTARY_INTERLEAVED
                                                             : MHA_ROTARY_HALVES,
        .type = check_type(self, input->type),
        .output_type = check_type(self, output_type),
    };
    size_t strides[4];
    read_shape(self, input, &desc, strides);
    mha_rotary_args args = { .input = check_input(self, input),
                             .output = check_output(self, "output", output_type, input->count, 1) };
    memcpy(args.input.strides, strides, sizeof strides);
    memcpy(args.output.strides, strides, sizeof strides);
    size_t rows = ids ? 1 : 0, sin_rows = rows;
    args.cos = bind_table(self, "cos_cache", &desc, &rows);
    args.sin = bind_table(self, "sin_cache", &desc, &sin_rows);
    desc.positions = rows < sin_rows ? rows : sin_rows;
    if (ids && ids->count != desc.batch * desc.len)
        check_fail(self, "%s has not one position for each row", ids->name);
    if (ids)
        args.position_ids = check_lengths(self, ids, 0, ids->count);
    if (check_ready(self))
        enqueue(self, &desc, &args);
}
