/* The exponentials of the kernels for CPUs (cl/power.h) against the host's in double precision:
 * over all that they take, and on either side of where they end. */
#include "probe.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>

enum {
    PER_ONE = 64, /* numbers from one integer to the next */
    FROM = -132,
    TO = 132,
    SWEPT = (TO - FROM) * PER_ONE,
    ODD = 64,
    COUNT = SWEPT + ODD
};

/* An even sweep, with an odd part of a step so that no two integers see the same fractions; what is
 * just below, at and just above each limit; and the ends of float. */
static void fill(float x[COUNT])
{
    static const float limits[] = { -127.5f, -127, -126.5f, -126, 0,      127,   127.5f,
                                    128,     -88,  -87.7f,  -87,  88.37f, 88.4f, 88.72f };
    static const float ends[] = { FLT_MAX,  -FLT_MAX,  FLT_MIN, -FLT_MIN, -0.0f,
                                  INFINITY, -INFINITY, NAN,     -1e4f,    1e4f };
    _Static_assert(3 * sizeof limits + sizeof ends <= ODD * sizeof *x, "all have room");
    for (int n = 0; n < SWEPT; n++)
        x[n] = FROM + ((float)n + (float)(n % 7) / 7) / PER_ONE;
    size_t n = SWEPT;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        x[n++] = nextafterf(limits[i], -INFINITY);
        x[n++] = limits[i];
        x[n++] = nextafterf(limits[i], INFINITY);
    }
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        x[n++] = ends[i];
    while (n < COUNT)
        x[n++] = 0;
}

/* Within a relative error; below the smallest normal number 0 will do, as a device may have no
 * smaller ones. */
static void expect_near(const char *what, float x, float got, double want, double relative)
{
    const double error = fabs(got - want);
    const bool is_small = want < FLT_MIN && got == 0;
    cr_expect(is_small || error <= want * relative + 0x1p-149, "%s of %.9g is %.9g, not %.9g", what,
              (double)x, (double)got, want);
}

static void expect_power(float x, float got)
{
    if (isnan(x))
        cr_expect(isnan(got), "2^NaN is %g", (double)got);
    else if (x < -126.5f)
        cr_expect_eq(got, 0, "2^%.9g is %g, not 0", (double)x, (double)got);
    else if (x <= 127.5f)
        expect_near("2^x", x, got, exp2(x), 2.4e-7);
}

static void expect_exponential(float x, float got)
{
    const double as_power = x * 1.4426950408889634; /* near the limits either is right */
    if (isnan(x))
        cr_expect(isnan(got), "e^NaN is %g", (double)got);
    else if (as_power < -126.5 - 1e-5)
        cr_expect_eq(got, 0, "e^%.9g is %g, not 0", (double)x, (double)got);
    else if (as_power > 127.5 + 1e-5)
        cr_expect_eq(got, INFINITY, "e^%.9g is %g, not infinity", (double)x, (double)got);
    else if (fabs(as_power - 127.5) > 1e-5 && fabs(as_power + 126.5) > 1e-5)
        expect_near("e^x", x, got, exp(x), 2.4e-7 + 1e-7 * fabs(x));
}

static void check_lanes(size_t lanes)
{
    static float x[COUNT], power[COUNT], natural[COUNT];
    fill(x);
    char options[32];
    snprintf(options, sizeof options, "-DLANES=%zu", lanes);
    probe p = { 0 };
    probe_open(&p, "power_probe", options);
    const size_t shape[4] = { 1, 1, 1, COUNT };
    const device_tensor from = device_input(&p.d, shape, NULL, sizeof(float), x);
    const device_tensor two = device_output(&p.d, shape, NULL, sizeof(float));
    const device_tensor e = device_output(&p.d, shape, NULL, sizeof(float));
    const mha_arg args[] = {
        MHA_ARG_MEM(device_buffer(&from)), MHA_ARG_SIZE(from.offset),
        MHA_ARG_MEM(device_buffer(&two)),  MHA_ARG_SIZE(two.offset),
        MHA_ARG_MEM(device_buffer(&e)),    MHA_ARG_SIZE(e.offset),
    };
    probe_launch(&p, "power_probe_both", args, sizeof args / sizeof args[0],
                 &(mha_grid){ .dims = 1, .global = { COUNT / lanes } });
    device_read(&p.d, &two, power);
    device_read(&p.d, &e, natural);
    for (size_t n = 0; n < COUNT; n++) {
        expect_power(x[n], power[n]);
        expect_exponential(x[n], natural[n]);
    }
    probe_close(&p);
}

Test(power, over_all_and_at_the_limits)
{
    check_lanes(8);
    check_lanes(16);
}
