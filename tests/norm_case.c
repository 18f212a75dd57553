/* Cases of layer norm and RMS norm. */
#include "norm_case.h"

#include "stored.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The arguments, inputs first. */
enum {
    INPUT,
    RESIDUAL,
    INPUT_BIAS,
    WEIGHT,
    BIAS,
    OUTPUT,
    SUM,
    MEAN,
    INV_STD,
    ARGUMENTS
};

static const struct {
    const char *name;
    unsigned bit;
    bool per_row, per_column;
    size_t at; /* in mha_norm_args */
} arguments[ARGUMENTS] = {
    { "input", 0, true, true, offsetof(mha_norm_args, input) },
    { "residual", MHA_NORM_RESIDUAL, true, true, offsetof(mha_norm_args, residual) },
    { "input_bias", MHA_NORM_INPUT_BIAS, false, true, offsetof(mha_norm_args, input_bias) },
    { "weight", MHA_NORM_WEIGHT, false, true, offsetof(mha_norm_args, weight) },
    { "bias", MHA_NORM_BIAS, false, true, offsetof(mha_norm_args, bias) },
    { "output", 0, true, true, offsetof(mha_norm_args, output) },
    { "sum", MHA_NORM_SUM, true, true, offsetof(mha_norm_args, sum) },
    { "mean", MHA_NORM_MEAN, true, false, offsetof(mha_norm_args, mean) },
    { "inv_std", MHA_NORM_INV_STD, true, false, offsetof(mha_norm_args, inv_std) },
};

static mha_type type_of(const mha_norm_desc *desc, int argument)
{
    const mha_type type = desc->type ? desc->type : MHA_FLOAT32;
    switch (argument) {
    case INPUT:
    case RESIDUAL:
    case SUM:
        return type;
    case OUTPUT:
        return desc->output_type ? desc->output_type : type;
    case MEAN:
    case INV_STD:
        return MHA_FLOAT32;
    default:
        return desc->weight_type ? desc->weight_type : MHA_FLOAT32;
    }
}

static size_t rows_of(const norm_case *c)
{
    return c->rows ? c->rows : c->desc.rows;
}

static size_t count_of(const norm_case *c, int argument)
{
    return (arguments[argument].per_row ? rows_of(c) : 1) *
           (arguments[argument].per_column ? c->desc.width : 1);
}

static bool uses(const norm_case *c, int argument)
{
    const unsigned bit = arguments[argument].bit;
    return !bit || c->desc.uses & bit;
}

/* The argument whose memory this output has, -1: its own. */
static int twin_of(norm_place place, int argument)
{
    static const struct {
        int output, sum;
    } twins[NORM_PLACES] = {
        [NORM_APART] = { -1, -1 },
        [NORM_OVER_INPUT] = { INPUT, -1 },
        [NORM_OVER_RESIDUAL] = { RESIDUAL, -1 },
        [NORM_SUM_OVER_RESIDUAL] = { -1, RESIDUAL },
        [NORM_SUM_OVER_INPUT] = { -1, INPUT },
        [NORM_OVER_BOTH] = { INPUT, RESIDUAL },
        [NORM_CROSSED] = { RESIDUAL, INPUT },
    };
    return argument == OUTPUT ? twins[place].output : argument == SUM ? twins[place].sum : -1;
}

/* Whether the call has what the place speaks of, of one type. */
static bool fits(const norm_case *c, norm_place place)
{
    for (int i = OUTPUT; i <= SUM; i++) {
        const int twin = twin_of(place, i);
        if (twin >= 0 &&
            !(uses(c, i) && uses(c, twin) && type_of(&c->desc, i) == type_of(&c->desc, twin)))
            return false;
    }
    return true;
}

norm_case norm_case_pick(uint64_t seed, size_t width, mha_norm_kind kind, mha_tiling tiling)
{
    static const size_t sizes[] = { 0, 1, 2, 3, 17, 65 };
    static const float epsilons[] = { 0, 0, 1e-12f, 0.1f };
    static const unsigned all = 2 * MHA_NORM_INV_STD - 1;
    const uint64_t group = seed / 4;
    norm_case c = { .seed = seed * 16 };
    const size_t rows = sizes[compare_pick(seed, 0, 6)];
    const bool longer = rows && compare_pick(seed, 1, 2);
    c.rows = longer ? rows : 0;
    c.desc = (mha_norm_desc){
        .rows = longer ? rows + compare_pick(seed, 2, 9) : rows,
        .width = width,
        .kind = kind,
        .uses = (unsigned)compare_pick(group, 3, all + 1),
        .epsilon = epsilons[compare_pick(seed, 4, 4)],
        .type = (mha_type)compare_pick(group, 5, 4),
        .output_type = (mha_type)compare_pick(group, 6, 4),
        .weight_type = (mha_type)compare_pick(group, 7, 4),
        .tiling = tiling,
    };
    if (kind == MHA_NORM_RMS)
        c.desc.uses &= ~MHA_NORM_MEAN;
    c.place = (norm_place)compare_pick(seed, 8, NORM_PLACES);
    c.place = fits(&c, c.place) ? c.place : NORM_APART;
    c.gaps = compare_pick(seed, 9, 2);
    c.shift = compare_pick(seed, 10, 3) ? 0 : 1e4f;
    c.fill =
        compare_pick(seed, 11, 2) ? FILL_NORMAL : (fill_kind)compare_pick(seed, 12, FILL_KINDS);
    return c;
}

/* --- the host's side --- */

typedef struct norm_data {
    float *floats[ARGUMENTS]; /* what is given, and what comes back */
    double *want[ARGUMENTS];
} norm_data;

static norm_data make_data(const norm_case *c)
{
    norm_data data;
    for (int i = 0; i < ARGUMENTS; i++) {
        const size_t count = count_of(c, i);
        data.floats[i] = calloc(count + 1, sizeof(float));
        data.want[i] = calloc(count + 1, sizeof(double));
        cr_assert(data.floats[i] && data.want[i], "no memory");
        if (i >= OUTPUT)
            continue;
        fill_floats(data.floats[i], count, c->seed + (uint64_t)i,
                    i < INPUT_BIAS ? c->fill : FILL_NORMAL);
        for (size_t k = 0; i == INPUT && k < count; k++)
            data.floats[i][k] += c->shift;
        stored_round(type_of(&c->desc, i), data.floats[i], count);
    }
    const reference_norm_args args = {
        .rows = c->rows,
        .input = data.floats[INPUT],
        .residual = uses(c, RESIDUAL) ? data.floats[RESIDUAL] : NULL,
        .input_bias = uses(c, INPUT_BIAS) ? data.floats[INPUT_BIAS] : NULL,
        .weight = uses(c, WEIGHT) ? data.floats[WEIGHT] : NULL,
        .bias = uses(c, BIAS) ? data.floats[BIAS] : NULL,
        .output = data.want[OUTPUT],
        .sum = data.want[SUM],
        .mean = data.want[MEAN],
        .inv_std = data.want[INV_STD],
    };
    reference_norm(&c->desc, &args);
    return data;
}

static void free_data(norm_data *data)
{
    for (int i = 0; i < ARGUMENTS; i++) {
        free(data->floats[i]);
        free(data->want[i]);
    }
}

/* --- the device's side --- */

static device_tensor place_one(device *d, const norm_case *c, const norm_data *data, int i)
{
    const mha_type type = type_of(&c->desc, i);
    const size_t width = arguments[i].per_column ? c->desc.width : 1;
    const size_t shape[4] = { 1, 1, arguments[i].per_row ? rows_of(c) : 1, width };
    const size_t row = width + 3 + (size_t)i; /* another gap for each */
    const size_t strides[4] = { shape[2] * row, shape[2] * row, row, 1 };
    const bool is_read = i < OUTPUT;
    const bool is_written =
        !is_read || twin_of(c->place, OUTPUT) == i || twin_of(c->place, SUM) == i;
    void *stored = is_read ? stored_pack(type, data->floats[i], count_of(c, i)) : NULL;
    const bool has_gaps = c->gaps && arguments[i].per_row;
    device_tensor tensor;
    if (is_written) {
        tensor = device_output(d, shape, has_gaps ? strides : NULL, stored_bytes(type));
        if (is_read)
            device_write(d, &tensor, stored);
    } else {
        tensor = device_input(d, shape, has_gaps ? strides : NULL, stored_bytes(type), stored);
    }
    free(stored);
    return tensor;
}

static void read_one(device *d, const norm_case *c, norm_data *data, int i,
                     const device_tensor *tensor)
{
    void *stored = calloc(count_of(c, i) + 1, sizeof(float));
    cr_assert(stored);
    device_read(d, tensor, stored);
    stored_unpack(type_of(&c->desc, i), data->floats[i], stored, count_of(c, i));
    free(stored);
}

static void normalise(device *d, const norm_case *c, norm_data *data)
{
    device_tensor tensors[ARGUMENTS];
    mha_norm_args args = { .rows = c->rows };
    for (int i = 0; i < ARGUMENTS; i++) {
        if (!uses(c, i))
            continue;
        const int twin = twin_of(c->place, i);
        tensors[i] = twin < 0 ? place_one(d, c, data, i) : tensors[twin];
        *(mha_tensor *)((char *)&args + arguments[i].at) = device_arg(&tensors[i]);
    }
    mha_norm *norm = NULL;
    cr_assert_eq(mha_norm_create(&norm, d->context, &c->desc), MHA_OK, "%s: %s", c->name,
                 d->sentence);
    const mha_call call = { .queue = d->queue };
    cr_assert_eq(mha_norm_enqueue(norm, &args, &call), MHA_OK, "%s: %s", c->name, d->sentence);
    mha_norm_destroy(&norm);
    cr_assert_null(norm);
    for (int i = OUTPUT; i < ARGUMENTS; i++)
        if (uses(c, i))
            read_one(d, c, data, i, &tensors[i]);
    device_expect_guards(d, c->name);
    device_forget(d);
}

/* --- the comparison --- */

/* What adding up residual and bias may lose: s itself is rounded to float32. */
static double sum_limit(const norm_case *c, const norm_data *data, size_t r, size_t column)
{
    const size_t at = r * c->desc.width + column;
    double largest = fabs(data->floats[INPUT][at]);
    if (uses(c, RESIDUAL))
        largest += fabs(data->floats[RESIDUAL][at]);
    if (uses(c, INPUT_BIAS))
        largest += fabs(data->floats[INPUT_BIAS][column]);
    return uses(c, RESIDUAL) || uses(c, INPUT_BIAS) ? FLT_EPSILON * largest : 0;
}

static void check_row(const norm_case *c, const norm_data *data, size_t r, compare_worst *worst)
{
    const size_t width = c->desc.width;
    const double relative = reference_limit(width, 1), inv_std = data->want[INV_STD][r];
    const mha_type type = type_of(&c->desc, SUM), output_type = type_of(&c->desc, OUTPUT);
    double lost = 0; /* in any element of s */
    for (size_t k = 0; k < width; k++)
        lost = fmax(lost, sum_limit(c, data, r, k));
    for (size_t k = 0; k < width; k++) {
        const size_t at = r * width + k;
        const double weight = uses(c, WEIGHT) ? fabs(data->floats[WEIGHT][k]) : 1;
        const double bias = uses(c, BIAS) ? data->floats[BIAS][k] : 0;
        const double want = data->want[OUTPUT][at];
        const double scaled = fabs(want - bias);
        const double limit = relative * (weight + scaled) + 2 * lost * inv_std * (weight + scaled) +
                             FLT_EPSILON * fabs(bias);
        compare_one(c->name, "output", at, data->floats[OUTPUT][at], want,
                    limit + stored_limit(output_type, fabs(want) + limit), worst);
        const double sum = data->want[SUM][at];
        if (uses(c, SUM))
            compare_one(c->name, "sum", at, data->floats[SUM][at], sum,
                        lost + stored_limit(type, fabs(sum) + lost), worst);
    }
    const double mean = data->want[MEAN][r];
    if (uses(c, MEAN))
        compare_one(c->name, "mean", r, data->floats[MEAN][r], mean,
                    lost + relative / inv_std + FLT_EPSILON * fabs(mean), worst);
    if (uses(c, INV_STD))
        compare_one(c->name, "inv_std", r, data->floats[INV_STD][r], inv_std,
                    inv_std * (relative + 2 * lost * inv_std), worst);
}

static void name_case(norm_case *c)
{
    const mha_norm_desc *n = &c->desc;
    snprintf(c->name, sizeof c->name,
             "seed %llu: %s of %zu rows of %zu, width %zu, tiling %d, uses 0x%x, epsilon %g, types "
             "%d to %d, weights %d, place %d%s, %s + %g",
             (unsigned long long)c->seed / 16, n->kind == MHA_NORM_RMS ? "RMS" : "layer",
             rows_of(c), n->rows, n->width, (int)n->tiling, n->uses, (double)n->epsilon,
             (int)n->type, (int)n->output_type, (int)n->weight_type, (int)c->place,
             c->gaps ? ", gaps" : "", fill_kind_name(c->fill), (double)c->shift);
}

void norm_case_check(device *d, norm_case *c, compare_worst *worst)
{
    name_case(c);
    norm_data data = make_data(c);
    normalise(d, c, &data);
    for (size_t r = 0; r < rows_of(c); r++)
        check_row(c, &data, r, worst);
    free_data(&data);
}
