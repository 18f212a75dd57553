/* A feed-forward network's weights and rows, on the host and on the device. */
#include "ffn_case.h"

#include "host_memory.h"
#include "stored.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    cr_assert(memory, "no memory for %zu elements", count);
    return memory;
}

static size_t output_width(const mha_ffn_desc *desc)
{
    return desc->output_width ? desc->output_width : desc->width;
}

ffn_weights ffn_weights_new(const mha_ffn_desc *desc, uint64_t seed)
{
    const size_t in = desc->width, hidden = desc->hidden_width, out = output_width(desc);
    const bool turned = desc->flags & MHA_FFN_OUT_IN;
    const struct {
        size_t rows, columns; /* in x out */
        bool exists;
    } list[FFN_WEIGHTS] = {
        { in, hidden, true },
        { in, hidden, desc->flags & MHA_FFN_GATE },
        { hidden, out, true },
        { 1, hidden, desc->flags & MHA_FFN_BIAS_HIDDEN },
        { 1, hidden, desc->flags & MHA_FFN_BIAS_GATE },
        { 1, out, desc->flags & MHA_FFN_BIAS_OUTPUT },
    };
    ffn_weights weights = { .type = desc->weight_type };
    for (int i = 0; i < FFN_WEIGHTS; i++) {
        if (!list[i].exists)
            continue;
        const bool turns = turned && i < 3;
        const size_t shape[4] = { 1, 1, turns ? list[i].columns : list[i].rows,
                                  turns ? list[i].rows : list[i].columns };
        const size_t count = shape[2] * shape[3];
        const float most = i < 3 ? 1.5f / sqrtf((float)list[i].rows) : 0.5f;
        memcpy(weights.shapes[i], shape, sizeof shape);
        weights.data[i] = allocate(count, sizeof(float));
        fill_uniform(weights.data[i], count, seed + (uint64_t)i, -most, most);
        stored_round(weights.type, weights.data[i], count);
    }
    return weights;
}

void ffn_weights_free(ffn_weights *weights)
{
    for (int i = 0; i < FFN_WEIGHTS; i++)
        free(weights->data[i]);
    *weights = (ffn_weights){ 0 };
}

reference_ffn_weights ffn_weights_reference(const ffn_weights *weights)
{
    float *const *data = weights->data;
    return (reference_ffn_weights){ .hidden = data[0],
                                    .gate = data[1],
                                    .output = data[2],
                                    .bias_hidden = data[3],
                                    .bias_gate = data[4],
                                    .bias_output = data[5] };
}

mha_ffn_weights ffn_weights_place(device *d, const ffn_weights *weights, bool gaps)
{
    mha_tensor placed[FFN_WEIGHTS] = { { 0 } };
    for (int i = 0; i < FFN_WEIGHTS; i++) {
        const size_t *shape = weights->shapes[i];
        const size_t row = shape[3] + 3;
        const size_t strides[4] = { 0, 0, row, 1 };
        if (!weights->data[i])
            continue;
        void *stored = stored_pack(weights->type, weights->data[i], shape[2] * shape[3]);
        const device_tensor tensor = device_input(d, shape, gaps && shape[2] > 1 ? strides : NULL,
                                                  stored_bytes(weights->type), stored);
        placed[i] = device_arg(&tensor);
        free(stored);
    }
    return (mha_ffn_weights){ .hidden = placed[0],
                              .gate = placed[1],
                              .output = placed[2],
                              .bias_hidden = placed[3],
                              .bias_gate = placed[4],
                              .bias_output = placed[5] };
}

mha_ffn_host_weights ffn_host_weights(const ffn_weights *weights, bool gaps)
{
    mha_host_input made[FFN_WEIGHTS];
    for (int i = 0; i < FFN_WEIGHTS; i++)
        made[i] = host_input(weights->type, weights->shapes[i], gaps && i < 3, weights->data[i]);
    return (mha_ffn_host_weights){ made[0],      made[1],      made[2],
                                   made[3].data, made[4].data, made[5].data };
}

static mha_type output_type(const mha_ffn_desc *desc)
{
    return desc->output_type ? desc->output_type : desc->type;
}

/* `want` is what the call on the device's memory gave. */
static void run_host(device *d, const ffn_case *c, const char *name, const ffn_weights *weights,
                     const float *input, const void *want, size_t rows)
{
    const size_t shape[4] = { 1, 1, rows, output_width(&c->desc) };
    const size_t bytes = rows * shape[3] * stored_bytes(output_type(&c->desc));
    const mha_ffn_host_weights loaded = ffn_host_weights(weights, c->gaps);
    const mha_ffn_host_args args = {
        .rows = c->rows,
        .input = host_input(c->desc.type, (size_t[]){ 1, 1, rows, c->desc.width }, c->gaps, input),
        .output = host_output(output_type(&c->desc), shape, c->gaps),
    };
    mha_ffn *ffn = NULL;
    cr_assert_eq(mha_ffn_create(&ffn, d->context, &c->desc), MHA_OK, "%s: %s", name, d->sentence);
    cr_assert_eq(mha_ffn_load_host(ffn, &loaded), MHA_OK, "%s: %s", name, d->sentence);
    cr_assert_eq(mha_ffn_run(ffn, &args), MHA_OK, "%s: %s", name, d->sentence);
    mha_ffn_destroy(&ffn);
    void *got = allocate(bytes, 1);
    host_read(name, &args.output, output_type(&c->desc), shape, got);
    cr_expect(!memcmp(got, want, bytes), "%s: host arrays give another result", name);
    free(got);
}

static void run(device *d, const ffn_case *c, const char *name, const ffn_weights *weights,
                const float *input, float *output, size_t rows)
{
    const size_t in = c->desc.width, out = output_width(&c->desc);
    const size_t from_shape[4] = { 1, 1, rows, in }, to_shape[4] = { 1, 1, rows, out };
    const size_t from_strides[4] = { 0, 0, in + 5, 1 }, to_strides[4] = { 0, 0, out + 2, 1 };
    const bool gaps = c->gaps && rows > 1;
    const mha_ffn_weights placed = ffn_weights_place(d, weights, c->gaps);
    mha_ffn *ffn = NULL;
    cr_assert_eq(mha_ffn_create(&ffn, d->context, &c->desc), MHA_OK, "%s: %s", name, d->sentence);
    cr_assert_eq(mha_ffn_load(ffn, &placed, &(mha_call){ .queue = d->queue }), MHA_OK, "%s: %s",
                 name, d->sentence);
    device_expect_guards(d, name);
    device_forget(d); /* the network has its own */
    const mha_type type = c->desc.type, to_type = output_type(&c->desc);
    void *stored = stored_pack(type, input, rows * in);
    const device_tensor from =
        device_input(d, from_shape, gaps ? from_strides : NULL, stored_bytes(type), stored);
    const device_tensor to =
        device_output(d, to_shape, gaps ? to_strides : NULL, stored_bytes(to_type));
    free(stored);
    const mha_ffn_args args = { .rows = c->rows,
                                .input = device_arg(&from),
                                .output = device_arg(&to) };
    const mha_call call = device_call(d, mha_ffn_workspace(ffn));
    cr_assert_eq(mha_ffn_enqueue(ffn, &args, &call), MHA_OK, "%s: %s", name, d->sentence);
    stored = allocate(rows * out, stored_bytes(to_type));
    device_read(d, &to, stored);
    stored_unpack(to_type, output, stored, rows * out);
    run_host(d, c, name, weights, input, stored, rows);
    free(stored);
    mha_ffn_destroy(&ffn);
    cr_assert_null(ffn);
    device_expect_guards(d, name);
    device_forget(d);
}

void ffn_case_check(device *d, const ffn_case *c, compare_worst *worst)
{
    const size_t rows = c->rows ? c->rows : c->desc.rows;
    const size_t in = c->desc.width, out = output_width(&c->desc);
    char name[192];
    snprintf(
        name, sizeof name,
        "feed-forward %zu of %zu rows %zu %zu %zu activation %d flags %02x by %d seed %llu types "
        "%d,%d weights %d",
        rows, c->desc.rows, in, c->desc.hidden_width, out, (int)c->desc.activation, c->desc.flags,
        (int)c->desc.projection, (unsigned long long)c->seed, (int)c->desc.type,
        (int)c->desc.output_type, (int)c->desc.weight_type);
    ffn_weights weights = ffn_weights_new(&c->desc, c->seed * 16);
    const reference_ffn_weights reference = ffn_weights_reference(&weights);
    float *input = allocate(rows * in, sizeof *input);
    float *got = allocate(rows * out, sizeof *got);
    double *want = allocate(rows * out, sizeof *want);
    fill_floats(input, rows * in, c->seed * 16 + 9, FILL_NORMAL);
    stored_round(c->desc.type, input, rows * in);
    reference_ffn(&c->desc, &reference, rows, input, want);
    run(d, c, name, &weights, input, got, rows);
    /* Hidden rows are sums of terms below 5 * 1.5 / sqrt(in), a gate multiplies two of them. */
    const double limit = reference_limit(in + c->desc.hidden_width, 16);
    for (size_t i = 0; i < rows * out; i++)
        if (!compare_one(name, "output", i, got[i], want[i],
                         limit + stored_limit(output_type(&c->desc), fabs(want[i]) + limit), worst))
            break;
    ffn_weights_free(&weights);
    free(input);
    free(got);
    free(want);
}
