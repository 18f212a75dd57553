/* The public layer norm and RMS norm against the reference. How they refuse is in
 * test_errors_norm.c. */
#include "norm_case.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(norm, .timeout = 600);

enum {
    SEEDS = 4 /* of one program */
};

static const mha_tiling tilings[] = { MHA_TILING_CPU, MHA_TILING_GPU };

/* Widths of fewer elements than lanes and work-items, of as many, and of some more. */
Test(norm, cross)
{
    static const size_t widths[] = { 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 257, 1024 };
    device d;
    compare_worst worst = { 0 };
    size_t cases = 0;
    device_open(&d);
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        for (unsigned n = 0; n < 2 * 2 * SEEDS; n++) {
            const uint64_t seed = 4000 + i * 2 * 2 * SEEDS + n;
            norm_case c = norm_case_pick(seed, widths[i], (mha_norm_kind)(n / SEEDS % 2),
                                         tilings[n / SEEDS / 2]);
            norm_case_check(&d, &c, &worst);
            cases++;
        }
    compare_log("norm", cases, &worst);
    device_close(&d);
}

/* All arguments in each place, so that none depends on the seeds' luck. */
Test(norm, places)
{
    device d;
    compare_worst worst = { 0 };
    size_t cases = 0;
    device_open(&d);
    for (int place = 0; place < NORM_PLACES; place++)
        for (int n = 0; n < 4; n++) {
            norm_case c = {
                .desc = { .rows = 9,
                          .width = 70,
                          .kind = (mha_norm_kind)(n / 2),
                          .uses = MHA_NORM_WEIGHT | MHA_NORM_BIAS | MHA_NORM_RESIDUAL |
                                  MHA_NORM_INPUT_BIAS | MHA_NORM_SUM | MHA_NORM_INV_STD,
                          .type = (mha_type)(MHA_FLOAT32 + n % 3),
                          .tiling = tilings[n % 2] },
                .place = (norm_place)place,
                .gaps = n % 2,
                .seed = 900 + (uint64_t)n,
            };
            norm_case_check(&d, &c, &worst);
            cases++;
        }
    compare_log("places of norm", cases, &worst);
    device_close(&d);
}

/* Rows of a noise far less than their mean, in which E[x^2] - E[x]^2 would have no digit left, and
 * a mean in float32 a wrong one. */
Test(norm, large_means)
{
    static const size_t widths[] = { 64, 1000, 65537 };
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (size_t i = 0; i < 3; i++)
        for (int n = 0; n < 4; n++) {
            norm_case c = { .desc = { .rows = 3,
                                      .width = widths[i],
                                      .kind = (mha_norm_kind)(n / 2),
                                      .uses = MHA_NORM_INV_STD | (n / 2 ? 0 : MHA_NORM_MEAN),
                                      .tiling = tilings[n % 2] },
                            .shift = 1e4f,
                            .fill = FILL_UNIFORM,
                            .seed = i };
            norm_case_check(&d, &c, &worst);
        }
    compare_log("large means", 12, &worst);
    device_close(&d);
}

/* A grid has at most 65535 groups; a long row of each kind of data. */
Test(norm, many_and_long_rows)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (int t = 0; t < 2; t++) {
        norm_case many = { .desc = { .rows = 66000, .width = 3, .tiling = tilings[t] } };
        norm_case_check(&d, &many, &worst);
        for (int fill = 0; fill < FILL_KINDS; fill++) {
            norm_case c = { .desc = { .rows = 2, .width = 65537, .tiling = tilings[t] },
                            .fill = (fill_kind)fill,
                            .seed = 50 };
            norm_case_check(&d, &c, &worst);
        }
    }
    compare_log("many and long rows", 2 * (1 + FILL_KINDS), &worst);
    device_close(&d);
}

/* A NaN stays in its row. */
Test(norm, nan_stays_in_its_row)
{
    enum {
        ROWS = 3,
        WIDTH = 40
    };
    device d;
    device_open(&d);
    float data[ROWS * WIDTH], got[ROWS * WIDTH];
    fill_floats(data, ROWS * WIDTH, 1, FILL_NORMAL);
    data[WIDTH + 7] = NAN;
    const size_t shape[4] = { 1, 1, ROWS, WIDTH };
    const device_tensor from = device_input(&d, shape, NULL, sizeof(float), data);
    const device_tensor to = device_output(&d, shape, NULL, sizeof(float));
    for (int n = 0; n < 4; n++) {
        const mha_norm_desc desc = {
            .rows = ROWS, .width = WIDTH, .kind = (mha_norm_kind)(n / 2), .tiling = tilings[n % 2]
        };
        const mha_norm_args args = { .input = device_arg(&from), .output = device_arg(&to) };
        mha_norm *norm = NULL;
        cr_assert_eq(mha_norm_create(&norm, d.context, &desc), MHA_OK, "%s", d.sentence);
        cr_assert_eq(mha_norm_enqueue(norm, &args, &(mha_call){ .queue = d.queue }), MHA_OK);
        device_read(&d, &to, got);
        for (size_t i = 0; i < ROWS * WIDTH; i++)
            cr_expect_eq(isnan(got[i]), i / WIDTH == 1, "kind %d: [%zu] is %g", n / 2, i,
                         (double)got[i]);
        mha_norm_destroy(&norm);
    }
    device_close(&d);
}
