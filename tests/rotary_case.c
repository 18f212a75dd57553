/* Cases of the rotary position embedding. */
#include "rotary_case.h"

#include "stored.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    cr_assert(memory, "no memory");
    return memory;
}

static size_t len_of(const rotary_case *c)
{
    return c->len ? c->len : c->desc.len;
}

static size_t half_of(const rotary_case *c)
{
    return (c->desc.rotary_dim ? c->desc.rotary_dim : c->desc.dim) / 2;
}

static bool has_rows(const rotary_case *c)
{
    return c->given == ROTARY_BY_ROWS || c->given == ROTARY_BY_SHARED_ROWS;
}

static mha_type input_type(const mha_rotary_desc *desc)
{
    return desc->type ? desc->type : MHA_FLOAT32;
}

static mha_type output_type(const mha_rotary_desc *desc)
{
    return desc->output_type ? desc->output_type : input_type(desc);
}

rotary_case rotary_case_pick(uint64_t seed, size_t dim, size_t rotary_dim, mha_rotary_pairs pairs)
{
    static const size_t lens[] = { 0, 1, 3, 17, 65 };
    const uint64_t group = seed / 4;
    rotary_case c = { .seed = seed * 16 };
    const size_t len = lens[compare_pick(seed, 0, 5)];
    const bool longer = len && compare_pick(seed, 1, 2);
    c.len = longer ? len : 0;
    c.given = (rotary_given)compare_pick(seed, 2, ROTARY_WAYS);
    c.desc = (mha_rotary_desc){
        .batch = compare_pick(seed, 3, 8) ? 1 + compare_pick(seed, 3, 3) : 0,
        .heads = 1 + compare_pick(seed, 4, 3),
        .len = longer ? len + compare_pick(seed, 5, 9) : len,
        .dim = dim,
        .rotary_dim = rotary_dim,
        .pairs = pairs,
        .type = (mha_type)compare_pick(group, 6, 4),
        .output_type = (mha_type)compare_pick(group, 7, 4),
    };
    if (!has_rows(&c))
        c.desc.positions = c.given < ROTARY_BY_OFFSETS ? 1 + compare_pick(seed, 8, 40)
                                                       : 1 + len + compare_pick(seed, 8, 40);
    c.from = (rotary_layout)compare_pick(seed, 9, ROTARY_LAYOUTS);
    c.to = (rotary_layout)compare_pick(seed, 10, ROTARY_LAYOUTS);
    c.in_place = input_type(&c.desc) == output_type(&c.desc) && compare_pick(seed, 11, 2);
    c.table_gap = compare_pick(seed, 13, 2);
    c.fill =
        compare_pick(seed, 14, 2) ? FILL_NORMAL : (fill_kind)compare_pick(seed, 15, FILL_KINDS);
    return c;
}

/* --- the host's side --- */

typedef struct rotary_data {
    size_t count, rows, num_positions; /* elements, rows of a table, ids or offsets */
    float *input, *cos, *sin, *got;
    int32_t *positions; /* NULL: none */
    double *want;
    mha_type type, output_type;
} rotary_data;

/* In host memory all are in the tables; in device memory some are not. */
static void fill_positions(const rotary_case *c, rotary_data *data)
{
    static const int32_t wild[] = { -1, INT32_MIN, INT32_MAX, 1 << 20 };
    const bool ids = c->given == ROTARY_BY_IDS || c->given == ROTARY_BY_IDS_DEVICE;
    const size_t len = len_of(c);
    if (c->given > ROTARY_BY_OFFSETS_DEVICE)
        return;
    data->num_positions = ids ? c->desc.batch * len : c->desc.batch;
    data->positions = allocate(data->num_positions, sizeof *data->positions);
    fill_lengths(data->positions, data->num_positions, c->seed + 1,
                 (int32_t)(c->desc.positions - (ids ? 1 : len)));
    if (c->given == ROTARY_BY_IDS_DEVICE || c->given == ROTARY_BY_OFFSETS_DEVICE)
        for (size_t i = c->seed / 16 % 2; i < data->num_positions; i += 3)
            data->positions[i] = wild[i % 4];
}

static rotary_data make_data(const rotary_case *c)
{
    const size_t half = half_of(c), len = len_of(c);
    rotary_data data = { .type = input_type(&c->desc), .output_type = output_type(&c->desc) };
    data.count = c->desc.batch * c->desc.heads * len * c->desc.dim;
    data.rows = has_rows(c) ? c->desc.batch * len : c->desc.positions;
    data.input = allocate(data.count, sizeof(float));
    data.got = allocate(data.count, sizeof(float));
    data.want = allocate(data.count, sizeof(double));
    data.cos = allocate(data.rows * half, sizeof(float));
    data.sin = allocate(data.rows * half, sizeof(float));
    fill_floats(data.input, data.count, c->seed, c->fill);
    stored_round(data.type, data.input, data.count);
    fill_uniform(data.cos, data.rows * half, c->seed + 2, -1, 1);
    fill_uniform(data.sin, data.rows * half, c->seed + 3, -1, 1);
    for (size_t i = len * half; c->given == ROTARY_BY_SHARED_ROWS && i < data.rows * half; i++) {
        data.cos[i] = data.cos[i - len * half];
        data.sin[i] = data.sin[i - len * half];
    }
    fill_positions(c, &data);
    return data;
}

static void free_data(rotary_data *data)
{
    free(data->input);
    free(data->cos);
    free(data->sin);
    free(data->got);
    free(data->positions);
    free(data->want);
}

/* --- the device's side --- */

static void choose_strides(const rotary_case *c, rotary_layout layout, size_t strides[4])
{
    const size_t heads = c->desc.heads, len = len_of(c), dim = c->desc.dim;
    const size_t row = dim + 3, head = len * row + 1;
    const size_t in_row[4] = { len * heads * dim, dim, heads * dim, 1 };
    const size_t gaps[4] = { heads * head + 5, head, row, 1 };
    for (int axis = 0; axis < 4; axis++)
        strides[axis] = layout == ROTARY_LAYOUT_PACKED   ? 0
                        : layout == ROTARY_LAYOUT_IN_ROW ? in_row[axis]
                                                         : gaps[axis];
}

static device_tensor place_table(device *d, const rotary_case *c, const float *table)
{
    const size_t len = len_of(c), half = half_of(c), row = half + (c->table_gap ? 2 : 0);
    const bool shared = c->given == ROTARY_BY_SHARED_ROWS;
    const size_t shape[4] = { has_rows(c) ? c->desc.batch : 1, 1,
                              has_rows(c) ? len : c->desc.positions, half };
    const size_t strides[4] = { shared ? 0 : shape[2] * row, shape[2] * row, row, 1 };
    return device_input(d, shape, shared || c->table_gap ? strides : NULL, sizeof *table, table);
}

static mha_lengths place_positions(device *d, const rotary_case *c, const rotary_data *data)
{
    if (c->given == ROTARY_BY_IDS || c->given == ROTARY_BY_OFFSETS)
        return (mha_lengths){ .host = data->positions };
    const device_tensor tensor = device_input(d, (size_t[]){ 1, 1, 1, data->num_positions }, NULL,
                                              sizeof(int32_t), data->positions);
    return (mha_lengths){ .buffer = device_buffer(&tensor), .offset = tensor.offset };
}

static void rotate(device *d, const rotary_case *c, rotary_data *data)
{
    const size_t shape[4] = { c->desc.batch, c->desc.heads, len_of(c), c->desc.dim };
    size_t from_strides[4], to_strides[4];
    choose_strides(c, c->from, from_strides);
    choose_strides(c, c->in_place ? c->from : c->to, to_strides);
    void *input = stored_pack(data->type, data->input, data->count);
    void *output = allocate(data->count, sizeof(float));
    const device_tensor to = device_output(d, shape, to_strides, stored_bytes(data->output_type));
    device_tensor from = to;
    if (c->in_place)
        device_write(d, &to, input);
    else
        from = device_input(d, shape, from_strides, stored_bytes(data->type), input);
    const device_tensor cosines = place_table(d, c, data->cos),
                        sines = place_table(d, c, data->sin);
    mha_rotary_args args = { .len = c->len,
                             .input = device_arg(&from),
                             .output = device_arg(&to),
                             .cos = device_arg(&cosines),
                             .sin = device_arg(&sines) };
    if (c->given <= ROTARY_BY_IDS_DEVICE)
        args.position_ids = place_positions(d, c, data);
    else if (c->given <= ROTARY_BY_OFFSETS_DEVICE)
        args.offsets = place_positions(d, c, data);
    mha_rotary *rotary = NULL;
    cr_assert_eq(mha_rotary_create(&rotary, d->context, &c->desc), MHA_OK, "%s: %s", c->name,
                 d->sentence);
    const mha_call call = device_call(d, mha_rotary_workspace(rotary));
    cr_assert_eq(mha_rotary_enqueue(rotary, &args, &call), MHA_OK, "%s: %s", c->name, d->sentence);
    mha_rotary_destroy(&rotary);
    cr_assert_null(rotary);
    device_read(d, &to, output);
    device_expect_guards(d, c->name);
    stored_unpack(data->output_type, data->got, output, data->count);
    free(input);
    free(output);
    device_forget(d);
}

static void name_case(rotary_case *c)
{
    const mha_rotary_desc *r = &c->desc;
    snprintf(
        c->name, sizeof c->name,
        "seed %llu: b%zu h%zu len %zu of %zu dim %zu rotary %zu %s, types %d to %d, layouts %d "
        "to %d%s, positions %zu given %d",
        (unsigned long long)c->seed / 16, r->batch, r->heads, len_of(c), r->len, r->dim,
        r->rotary_dim, r->pairs ? "interleaved" : "halves", (int)r->type, (int)r->output_type,
        (int)c->from, (int)c->to, c->in_place ? " in place" : "", r->positions, (int)c->given);
}

void rotary_case_check(device *d, rotary_case *c, compare_worst *worst)
{
    name_case(c);
    rotary_data data = make_data(c);
    const reference_rotary_args args = {
        .len = c->len,
        .input = data.input,
        .cos = data.cos,
        .sin = data.sin,
        .position_ids = c->given <= ROTARY_BY_IDS_DEVICE ? data.positions : NULL,
        .offsets = c->given <= ROTARY_BY_IDS_DEVICE ? NULL : data.positions,
        .output = data.want,
    };
    reference_rotary(&c->desc, &args);
    rotate(d, c, &data);
    const size_t rotated = 2 * half_of(c), dim = c->desc.dim;
    for (size_t i = 0; i < data.count; i++) {
        const bool copied = i % dim >= rotated;
        const size_t row = i - i % dim;
        const double largest = compare_largest(data.input + row, rotated);
        const double limit = copied ? 0 : reference_limit(2, largest);
        if (!compare_one(c->name, copied ? "copied" : "rotated", i, data.got[i], data.want[i],
                         limit + stored_limit(data.output_type, fabs(data.want[i]) + limit), worst))
            break;
    }
    free_data(&data);
}
