/* The public activation functions against the reference. How they refuse is in
 * test_errors_activation.c. */
#include "activation_case.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(activation, .timeout = 600);

enum {
    KINDS = MHA_ACTIVATION_SILU + 1,
    SEEDS = 4 /* of one program */
};

static const mha_tiling tilings[] = { MHA_TILING_CPU, MHA_TILING_GPU };

Test(activation, cross)
{
    static const size_t widths[] = { 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1030 };
    device d;
    compare_worst worst = { 0 };
    size_t cases = 0;
    device_open(&d);
    for (unsigned n = 0; n < KINDS * 2 * 2 * SEEDS; n++)
        for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
            const uint64_t seed = 5000 + n;
            activation_case c =
                activation_case_pick(seed, widths[i], (mha_activation_kind)(n / SEEDS / 2 % KINDS),
                                     tilings[n / SEEDS % 2]);
            activation_case_check(&d, &c, &worst);
            cases++;
        }
    compare_log("activation", cases, &worst);
    device_close(&d);
}

/* Each layout with each place, so that none depends on the seeds' luck; SwiGLU and GEGLU. */
Test(activation, gates)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (int n = 0; n < ACTIVATION_LAYOUTS * ACTIVATION_PLACES * 4; n++) {
        activation_case c = {
            .desc = { .rows = 7,
                      .width = 37,
                      .kind = n % 2 ? MHA_ACTIVATION_SILU : MHA_ACTIVATION_GELU,
                      .uses = MHA_ACTIVATION_GATE,
                      .type = n % 4 ? MHA_FLOAT32 : MHA_BFLOAT16,
                      .tiling = tilings[n / 2 % 2] },
            .rows = 5,
            .layout = (activation_layout)(n / 4 % ACTIVATION_LAYOUTS),
            .place = n / 4 % ACTIVATION_LAYOUTS == ACTIVATION_HALVES
                         ? ACTIVATION_APART
                         : (activation_place)(n / 4 / ACTIVATION_LAYOUTS),
            .scale = 4,
            .seed = (uint64_t)n,
        };
        activation_case_check(&d, &c, &worst);
    }
    compare_log("gates", ACTIVATION_LAYOUTS * ACTIVATION_PLACES * 4, &worst);
    device_close(&d);
}

/* The grid has at most 65535 groups along the rows. */
Test(activation, many_rows)
{
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (int t = 0; t < 2; t++) {
        activation_case c = { .desc = { .rows = 66000,
                                        .width = 34,
                                        .kind = MHA_ACTIVATION_RELU,
                                        .tiling = tilings[t] },
                              .scale = 1 };
        activation_case_check(&d, &c, &worst);
    }
    device_close(&d);
}

/* A NaN stays one, and its neighbours are as they were. */
Test(activation, nan)
{
    enum {
        COUNT = 33
    };
    device d;
    device_open(&d);
    float data[COUNT], got[COUNT];
    fill_floats(data, COUNT, 1, FILL_NORMAL);
    data[3] = data[32] = NAN;
    const size_t shape[4] = { 1, 1, 1, COUNT };
    const device_tensor from = device_input(&d, shape, NULL, sizeof(float), data);
    const device_tensor to = device_output(&d, shape, NULL, sizeof(float));
    for (int n = 0; n < 2 * KINDS; n++) {
        const mha_activation_desc desc = { .rows = 1,
                                           .width = COUNT,
                                           .kind = (mha_activation_kind)(n / 2),
                                           .tiling = tilings[n % 2] };
        const mha_activation_args args = { .input = device_arg(&from), .output = device_arg(&to) };
        mha_activation *activation = NULL;
        cr_assert_eq(mha_activation_create(&activation, d.context, &desc), MHA_OK, "%s",
                     d.sentence);
        cr_assert_eq(mha_activation_enqueue(activation, &args, &(mha_call){ .queue = d.queue }),
                     MHA_OK);
        device_read(&d, &to, got);
        for (int i = 0; i < COUNT; i++)
            cr_expect_eq(isnan(got[i]), i == 3 || i == 32, "kind %d: [%d] is %g", n / 2, i,
                         (double)got[i]);
        mha_activation_destroy(&activation);
    }
    device_close(&d);
}
