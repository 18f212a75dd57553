/* LayerNormalization and RMSNormalization of ONNX, SkipLayerNormalization of ONNX Runtime. */
#include "ops.h"

#include <stdlib.h>
#include <string.h>

/* The packed input as rows: the axes before `axis` are rows, the others are one. */
static void read_rows(check *self, const case_tensor *input, long axis, mha_norm_desc *desc)
{
    const long first = axis < 0 ? axis + (long)input->rank : axis;
    if (first < 0 || first >= (long)input->rank)
        check_fail(self, "%s has no axis %ld", input->name, axis);
    else if (input->strided)
        check_skip(self, "this program takes a packed %s only", input->name);
    desc->rows = desc->width = 1;
    for (unsigned i = 0; i < input->rank; i++)
        *((long)i < first ? &desc->rows : &desc->width) *= input->shape[i];
    desc->type = check_type(self, input->type);
    desc->epsilon = (float)case_float(self->file, "epsilon", 1e-5);
    desc->tiling = self->setup->tiling;
}

/* Where element `index` of a row of `input` finds itself in `weight`, whose axes are aligned on the
 * right and may have length 1. */
static size_t broadcast_index(const case_tensor *input, const case_tensor *weight, size_t index)
{
    size_t at = 0, step = 1;
    for (unsigned back = 1; back <= weight->rank; back++) {
        const size_t length = input->shape[input->rank - back];
        if (weight->shape[weight->rank - back] > 1)
            at += index % length * step;
        step *= weight->shape[weight->rank - back];
        index /= length;
    }
    return at;
}

/* Whether `weight` has the axes of a row, each as long or of length 1, and others of length 1. */
static bool fits_row(const case_tensor *input, const case_tensor *weight, size_t width)
{
    size_t spanned = 1;
    for (unsigned back = 1; back <= weight->rank; back++) {
        const size_t length = weight->shape[weight->rank - back];
        if (back > input->rank)
            return false;
        spanned *= input->shape[input->rank - back];
        if (length != 1 && (length != input->shape[input->rank - back] || spanned > width))
            return false;
    }
    return !weight->strided;
}

/* A weight or bias as wide as a row; its type is that of all of them. */
static mha_tensor bind_weight(check *self, const case_tensor *input, const case_tensor *weight,
                              mha_norm_desc *desc)
{
    if (!weight || check_stopped(self))
        return (mha_tensor){ 0 };
    const mha_type type = check_type(self, weight->type);
    if (desc->weight_type && desc->weight_type != type)
        check_skip(self, "the interface takes one type for weights and biases");
    desc->weight_type = type;
    if (!fits_row(input, weight, desc->width))
        check_skip(self, "%s is not broadcast over a row of %s", weight->name, input->name);
    if (weight->count == desc->width || check_stopped(self))
        return check_input(self, weight);
    const size_t bytes = case_type_bytes(weight->type);
    char *const row = malloc(desc->width * bytes + 1);
    for (size_t i = 0; row && i < desc->width; i++)
        memcpy(row + i * bytes,
               (const char *)weight->data + broadcast_index(input, weight, i) * bytes, bytes);
    if (!row)
        check_fail(self, "the host is out of memory");
    const mha_tensor place =
        check_made_input(self, weight->name, weight->type, row, row ? desc->width : 0);
    free(row);
    return place;
}

/* The output of every norm. */
static mha_tensor bind_output(check *self, const case_tensor *input, mha_norm_desc *desc)
{
    const case_type type = check_output_type(self, "Y", input->type);
    desc->output_type = check_type(self, type);
    return check_output(self, "Y", type, input->count, 1);
}

/* An output that is written where the case wants it. */
static mha_tensor bind_wanted(check *self, const char *name, unsigned bit, case_type type,
                              size_t count, mha_norm_desc *desc)
{
    if (!check_wants(self, name))
        return (mha_tensor){ 0 };
    desc->uses |= bit;
    return check_output(self, name, type, count, 1);
}

static void enqueue(check *self, const mha_norm_desc *desc, const mha_norm_args *args)
{
    if (!check_ready(self))
        return;
    mha_norm *norm = NULL;
    const mha_call call = { .queue = self->setup->queue };
    check_status(self, mha_norm_create(&norm, self->setup->context, desc), "mha_norm_create");
    if (norm)
        check_status(self, mha_norm_enqueue(norm, args, &call), "mha_norm_enqueue");
    mha_norm_destroy(&norm);
}

static void run_onnx(check *self, mha_norm_kind kind)
{
    const case_tensor *const input = check_need(self, "X");
    const case_tensor *const weight = check_need(self, "W"), *const bias =
                                                                 case_input(self->file, "B");
    const long axis = case_int(self->file, "axis", -1);
    if (!input || !weight)
        return;
    if (case_flag(self->file, "has_bias", bias != NULL) != (bias != NULL))
        check_fail(self, "has_bias and the inputs differ");
    case_int(self->file, "axis_nonneg", axis);
    if (case_int(self->file, "stash_type", 1) != 1)
        check_skip(self, "the interface computes in float32 only");
    mha_norm_desc desc = { .kind = kind, .uses = MHA_NORM_WEIGHT | (bias ? MHA_NORM_BIAS : 0) };
    read_rows(self, input, axis, &desc);
    mha_norm_args args = { .input = check_input(self, input),
                           .weight = bind_weight(self, input, weight, &desc),
                           .bias = bind_weight(self, input, bias, &desc),
                           .output = bind_output(self, input, &desc) };
    if (kind == MHA_NORM_LAYER) {
        args.mean = bind_wanted(self, "Mean", MHA_NORM_MEAN, CASE_FLOAT32, desc.rows, &desc);
        args.inv_std =
            bind_wanted(self, "InvStdDev", MHA_NORM_INV_STD, CASE_FLOAT32, desc.rows, &desc);
    }
    enqueue(self, &desc, &args);
}

void ops_layer_normalization(check *self)
{
    run_onnx(self, MHA_NORM_LAYER);
}

void ops_rms_normalization(check *self)
{
    run_onnx(self, MHA_NORM_RMS);
}

void ops_skip_layer_normalization(check *self)
{
    const case_tensor *const input = check_need(self, "input"), *const skip =
                                                                    check_need(self, "skip");
    const case_tensor *const gamma = check_need(self, "gamma");
    const case_tensor *const beta = case_input(self->file, "beta");
    const case_tensor *const bias = case_input(self->file, "bias");
    if (!input || !skip || !gamma)
        return;
    case_int(self->file, "seq_len", 0);
    if (skip->count != input->count || skip->type != input->type || skip->strided)
        check_skip(self, "the interface takes a residual of the input's shape and type");
    mha_norm_desc desc = { .uses = MHA_NORM_WEIGHT | MHA_NORM_RESIDUAL |
                                   (beta ? MHA_NORM_BIAS : 0) | (bias ? MHA_NORM_INPUT_BIAS : 0) };
    read_rows(self, input, -1, &desc);
    mha_norm_args args = { .input = check_input(self, input),
                           .residual = check_input(self, skip),
                           .weight = bind_weight(self, input, gamma, &desc),
                           .bias = bind_weight(self, input, beta, &desc),
                           .input_bias = bind_weight(self, input, bias, &desc),
                           .output = bind_output(self, input, &desc) };
    args.sum = bind_wanted(self, "sum", MHA_NORM_SUM, input->type, input->count, &desc);
    enqueue(self, &desc, &args);
}
