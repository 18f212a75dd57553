/* The public rotary position embedding against the reference. How it refuses is in
 * test_errors_rotary.c. */
#include "rotary_case.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(rotary, .timeout = 600);

static const size_t dims[] = { 2, 3, 4, 7, 8, 33, 64, 80, 128 };

enum {
    NUM_DIMS = sizeof dims / sizeof dims[0],
    SEEDS = 4 /* of one program */
};

/* The whole row where that is even, all but its end, and 2 or 32 elements. */
static size_t check_dim(device *d, size_t dim, mha_rotary_pairs pairs, compare_worst *worst)
{
    const size_t parts[] = { 0, (dim - 1) / 2 * 2, dim < 32 ? 2 : 32 };
    size_t cases = 0;
    for (size_t part = 0; part < 3; part++) {
        if ((!parts[part] && dim % 2) || (part && !parts[part]))
            continue;
        for (uint64_t n = 0; n < SEEDS; n++) {
            const uint64_t seed = 2000 + ((dim * 2 + pairs) * 3 + part) * SEEDS + n;
            rotary_case c = rotary_case_pick(seed, dim, parts[part], pairs);
            rotary_case_check(d, &c, worst);
            cases++;
        }
    }
    return cases;
}

Test(rotary, cross)
{
    device d;
    compare_worst worst = { 0 };
    size_t cases = 0;
    device_open(&d);
    for (size_t i = 0; i < NUM_DIMS; i++)
        for (int pairs = MHA_ROTARY_HALVES; pairs <= MHA_ROTARY_INTERLEAVED; pairs++)
            cases += check_dim(&d, dims[i], (mha_rotary_pairs)pairs, &worst);
    compare_log("rotary", cases, &worst);
    device_close(&d);
}

/* Each way to say positions with each layout, so that none depends on the seeds' luck; each type
 * over itself. */
Test(rotary, positions_and_layouts)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (int n = 0; n < ROTARY_WAYS * ROTARY_LAYOUTS * 2; n++) {
        rotary_case c = rotary_case_pick(3000 + (uint64_t)n, 8, 6, MHA_ROTARY_HALVES);
        c.given = (rotary_given)(n % ROTARY_WAYS);
        c.from = (rotary_layout)(n / ROTARY_WAYS % ROTARY_LAYOUTS);
        c.in_place = n / ROTARY_WAYS / ROTARY_LAYOUTS;
        c.len = 17;
        c.desc.batch = 3;
        c.desc.len = 20;
        c.desc.positions = c.given >= ROTARY_BY_ROWS ? 0 : 19;
        c.desc.type = (mha_type)(MHA_FLOAT32 + n % 3);
        c.desc.output_type = MHA_TYPE_DEFAULT;
        rotary_case_check(&d, &c, &worst);
    }
    compare_log("rotary positions", ROTARY_WAYS * ROTARY_LAYOUTS * 2, &worst);
    device_close(&d);
}

/* The kernel's grid has at most 65535 groups along the rows. */
Test(rotary, more_rows_than_groups)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    rotary_case c = { .desc = { .batch = 1,
                                .heads = 2,
                                .len = 33000,
                                .dim = 34,
                                .rotary_dim = 2,
                                .positions = 33000 },
                      .given = ROTARY_BY_NOTHING,
                      .seed = 7 };
    rotary_case_check(&d, &c, &worst);
    device_close(&d);
}

/* What the embedding is for: with tables of angles, the product of a query at m and a key at n
 * depends on m - n only. */
static double product_at(device *d, mha_rotary *rotary, mha_rotary_args *args, int32_t m, int32_t n)
{
    const size_t dim = 32;
    const device_tensor to = device_output(d, (size_t[]){ 1, 1, 2, dim }, NULL, sizeof(float));
    float rows[64];
    args->output = device_arg(&to);
    args->position_ids.host = (int32_t[]){ m, n };
    const mha_call call = device_call(d, mha_rotary_workspace(rotary));
    cr_assert_eq(mha_rotary_enqueue(rotary, args, &call), MHA_OK, "%s", d->sentence);
    device_read(d, &to, rows);
    double sum = 0;
    for (size_t c = 0; c < dim; c++)
        sum += (double)rows[c] * rows[dim + c];
    return sum;
}

Test(rotary, products_depend_on_the_distance)
{
    enum {
        DIM = 32,
        POSITIONS = 50
    };
    static float rows[2 * DIM], cosines[POSITIONS * DIM / 2], sines[POSITIONS * DIM / 2];
    device d;
    device_open(&d);
    fill_floats(rows, 2 * DIM, 5, FILL_NORMAL);
    for (size_t i = 0; i < POSITIONS * DIM / 2; i++) {
        const double angle =
            (double)(i / (DIM / 2)) * pow(1e4, -2.0 * (double)(i % (DIM / 2)) / DIM);
        cosines[i] = (float)cos(angle);
        sines[i] = (float)sin(angle);
    }
    const size_t table[4] = { 1, 1, POSITIONS, DIM / 2 };
    const device_tensor from = device_input(&d, (size_t[]){ 1, 1, 2, DIM }, NULL, 4, rows);
    const device_tensor c = device_input(&d, table, NULL, 4, cosines);
    const device_tensor s = device_input(&d, table, NULL, 4, sines);
    mha_rotary_args args = { .input = device_arg(&from),
                             .cos = device_arg(&c),
                             .sin = device_arg(&s) };
    for (int pairs = MHA_ROTARY_HALVES; pairs <= MHA_ROTARY_INTERLEAVED; pairs++) {
        const mha_rotary_desc desc = { .batch = 1,
                                       .heads = 1,
                                       .len = 2,
                                       .dim = DIM,
                                       .positions = POSITIONS,
                                       .pairs = (mha_rotary_pairs)pairs };
        mha_rotary *rotary = NULL;
        cr_assert_eq(mha_rotary_create(&rotary, d.context, &desc), MHA_OK, "%s", d.sentence);
        const double near = product_at(&d, rotary, &args, 7, 3);
        const double far = product_at(&d, rotary, &args, 49, 45);
        const double other = product_at(&d, rotary, &args, 49, 44);
        cr_expect(fabs(near - far) < 1e-4, "pairs %d: %g and %g", pairs, near, far);
        cr_expect(fabs(near - other) > 1e-2, "pairs %d: %g and %g", pairs, near, other);
        mha_rotary_destroy(&rotary);
    }
    device_close(&d);
}
