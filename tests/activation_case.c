/* Cases of activation functions. */
#include "activation_case.h"

#include "stored.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static mha_type input_type(const mha_activation_desc *desc)
{
    return desc->type ? desc->type : MHA_FLOAT32;
}

static mha_type output_type(const mha_activation_desc *desc)
{
    return desc->output_type ? desc->output_type : input_type(desc);
}

static bool is_gated(const activation_case *c)
{
    return c->desc.uses & MHA_ACTIVATION_GATE;
}

static size_t rows_of(const activation_case *c)
{
    return c->rows ? c->rows : c->desc.rows;
}

activation_case activation_case_pick(uint64_t seed, size_t width, mha_activation_kind kind,
                                     mha_tiling tiling)
{
    static const size_t sizes[] = { 0, 1, 2, 3, 17, 65 };
    static const float alphas[] = { 0, 1, 1.702f, -0.5f }, scales[] = { 1, 4, 20 };
    const uint64_t group = seed / 4;
    activation_case c = { .seed = seed * 16 };
    const size_t rows = sizes[compare_pick(seed, 0, 6)];
    const bool longer = rows && compare_pick(seed, 1, 2);
    c.rows = longer ? rows : 0;
    c.desc = (mha_activation_desc){
        .rows = longer ? rows + compare_pick(seed, 2, 9) : rows,
        .width = width,
        .kind = kind,
        .uses = compare_pick(seed, 3, 2) ? MHA_ACTIVATION_GATE : 0,
        .alpha = kind == MHA_ACTIVATION_SILU ? alphas[compare_pick(seed, 4, 4)] : 0,
        .type = (mha_type)compare_pick(group, 5, 4),
        .output_type = (mha_type)compare_pick(group, 6, 4),
        .tiling = tiling,
    };
    c.layout = (activation_layout)compare_pick(seed, 7, ACTIVATION_LAYOUTS);
    c.place = (activation_place)compare_pick(seed, 8, ACTIVATION_PLACES);
    if (input_type(&c.desc) != output_type(&c.desc) ||
        (is_gated(&c) ? c.layout == ACTIVATION_HALVES : c.place == ACTIVATION_OVER_GATE))
        c.place = ACTIVATION_APART;
    c.scale = scales[compare_pick(seed, 9, 3)];
    c.fill =
        compare_pick(seed, 10, 2) ? FILL_NORMAL : (fill_kind)compare_pick(seed, 11, FILL_KINDS);
    return c;
}

/* --- the host's side --- */

typedef struct activation_data {
    size_t count;
    float *input, *gate, *got; /* without a gate it is not given */
    double *want;
} activation_data;

/* Where a naive formula divides infinities or loses its digits. */
static const float extremes[] = { 0,       -0.0f,    5,        -5,        9,      -9,
                                  13,      -13,      14.9f,    -15,       -15.1f, 88,
                                  -88,     -100.5f,  1e4f,     -1e4f,     1e20f,  -1e20f,
                                  FLT_MAX, -FLT_MAX, INFINITY, -INFINITY, FLT_MIN };

static activation_data make_data(const activation_case *c)
{
    const mha_type type = input_type(&c->desc);
    activation_data data = { .count = rows_of(c) * c->desc.width };
    data.input = calloc(data.count + 1, sizeof(float));
    data.gate = calloc(data.count + 1, sizeof(float));
    data.got = calloc(data.count + 1, sizeof(float));
    data.want = calloc(data.count + 1, sizeof(double));
    cr_assert(data.input && data.gate && data.got && data.want, "no memory");
    fill_floats(data.input, data.count, c->seed, c->fill);
    fill_floats(data.gate, data.count, c->seed + 1, FILL_NORMAL);
    for (size_t i = 0; i < data.count; i++)
        data.input[i] =
            i < sizeof extremes / sizeof extremes[0] ? extremes[i] : data.input[i] * c->scale;
    stored_round(type, data.input, data.count);
    stored_round(type, data.gate, data.count);
    reference_activation(&c->desc, &(reference_activation_args){
                                       .rows = c->rows,
                                       .input = data.input,
                                       .gate = is_gated(c) ? data.gate : NULL,
                                       .output = data.want,
                                   });
    return data;
}

static void free_data(activation_data *data)
{
    free(data->input);
    free(data->gate);
    free(data->got);
    free(data->want);
}

/* --- the device's side --- */

typedef struct activation_tensors {
    device_tensor input, gate, output;
} activation_tensors;

/* The strides of the layout; `number` makes the gaps of each tensor others. */
static const size_t *choose_strides(const activation_case *c, size_t number, size_t strides[4])
{
    const size_t width = c->desc.width, rows = rows_of(c);
    const size_t row = c->layout == ACTIVATION_HALVES ? 2 * width : width + 5 + number;
    const size_t chosen[4] = { rows * row, rows * row, row, 1 };
    for (int axis = 0; axis < 4; axis++)
        strides[axis] = chosen[axis];
    return c->layout == ACTIVATION_PACKED ? NULL : strides;
}

static activation_tensors place(device *d, const activation_case *c, const activation_data *data)
{
    const mha_type type = input_type(&c->desc);
    const size_t width = c->desc.width, bytes = stored_bytes(type);
    const size_t shape[4] = { 1, 1, rows_of(c), width };
    const size_t room = (shape[2] + 1) * (2 * width + 8);
    const bool over_input = c->place == ACTIVATION_OVER_INPUT;
    const bool over_gate = c->place == ACTIVATION_OVER_GATE;
    void *input = stored_pack(type, data->input, data->count);
    void *gate = stored_pack(type, data->gate, data->count);
    size_t strides[4];
    activation_tensors t;
    device_block *block = device_block_new(d, 2 * room, bytes);
    t.input =
        device_place(d, block, 0, shape, choose_strides(c, 0, strides), over_input ? NULL : input);
    t.gate = device_place(d, block, c->layout == ACTIVATION_HALVES ? width : room, shape,
                          choose_strides(c, 1, strides), over_gate ? NULL : gate);
    device_write(d, &t.input, input);
    device_write(d, &t.gate, gate);
    t.output = over_input ? t.input : t.gate;
    if (!over_input && !over_gate)
        t.output = device_output(d, shape, choose_strides(c, 2, strides),
                                 stored_bytes(output_type(&c->desc)));
    free(input);
    free(gate);
    return t;
}

static void run(device *d, const activation_case *c, activation_data *data)
{
    const activation_tensors t = place(d, c, data);
    const mha_activation_args args = { .rows = c->rows,
                                       .input = device_arg(&t.input),
                                       .gate =
                                           is_gated(c) ? device_arg(&t.gate) : (mha_tensor){ 0 },
                                       .output = device_arg(&t.output) };
    mha_activation *activation = NULL;
    cr_assert_eq(mha_activation_create(&activation, d->context, &c->desc), MHA_OK, "%s: %s",
                 c->name, d->sentence);
    const mha_call call = { .queue = d->queue };
    cr_assert_eq(mha_activation_enqueue(activation, &args, &call), MHA_OK, "%s: %s", c->name,
                 d->sentence);
    mha_activation_destroy(&activation);
    cr_assert_null(activation);
    void *output = calloc(data->count + 1, sizeof(float));
    cr_assert(output);
    device_read(d, &t.output, output);
    stored_unpack(output_type(&c->desc), data->got, output, data->count);
    free(output);
    device_expect_guards(d, c->name);
    device_forget(d);
}

static void name_case(activation_case *c)
{
    const mha_activation_desc *a = &c->desc;
    snprintf(c->name, sizeof c->name,
             "seed %llu: kind %d of %zu rows of %zu, width %zu, tiling %d, alpha %g%s, types %d to "
             "%d, layout %d, place %d, %s * %g",
             (unsigned long long)c->seed / 16, (int)a->kind, rows_of(c), a->rows, a->width,
             (int)a->tiling, (double)a->alpha, is_gated(c) ? ", gated" : "", (int)a->type,
             (int)a->output_type, (int)c->layout, (int)c->place, fill_kind_name(c->fill),
             (double)c->scale);
}

/* An exponential may be 3 units wrong, its argument is rounded, and a quotient may be 2.5 units
 * wrong. A device may take what is below FLT_MIN for 0. */
static double limit_of(const activation_case *c, double x, double gate)
{
    const double smallest = FLT_MIN * fmax(1, fabs(gate));
    if (c->desc.kind == MHA_ACTIVATION_NONE || c->desc.kind == MHA_ACTIVATION_RELU || !isfinite(x))
        return smallest;
    return smallest + reference_limit(4, fabs(x) * fabs(gate));
}

/* What is beyond the numbers of a type is an infinity. */
static double stored_want(mha_type type, double want)
{
    float stored =
        fabs(want) > FLT_MAX ? copysignf(INFINITY, (float)(want > 0 ? 1 : -1)) : (float)want;
    stored_round(type, &stored, 1);
    return isinf(stored) ? stored : want;
}

void activation_case_check(device *d, activation_case *c, compare_worst *worst)
{
    const mha_type type = output_type(&c->desc);
    name_case(c);
    activation_data data = make_data(c);
    run(d, c, &data);
    for (size_t i = 0; i < data.count; i++) {
        const double gate = is_gated(c) ? data.gate[i] : 1;
        const double limit =
            limit_of(c, data.input[i], gate) + (is_gated(c) ? FLT_EPSILON * fabs(data.want[i]) : 0);
        const double want = stored_want(type, data.want[i]);
        if (!compare_one(c->name, "output", i, data.got[i], want,
                         limit + stored_limit(type, fabs(want) + limit), worst))
            break;
    }
    free_data(&data);
}
