/* The seeded fills: the same numbers on every machine, and of the sizes that their kinds name. */
#include "fill.h"

#include <criterion/criterion.h>
#include <math.h>

/* The known answer of Random123's kat_vectors for a counter and a key of 0: 6627e8d5 e169c58d
 * bc57ac4c 9b00dbd8. */
Test(fill, same_everywhere)
{
    static const uint32_t words[] = { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 };
    float data[4];
    int32_t lengths[4];
    fill_uniform(data, 4, 0, 0, 1);
    fill_lengths(lengths, 4, 0, 255);
    for (size_t i = 0; i < 4; i++) {
        cr_expect_eq(data[i], (float)(words[i] >> 8) / (1 << 24), "float %zu", i);
        cr_expect_eq(lengths[i], (int32_t)(words[i] >> 24), "length %zu", i);
    }
}

Test(fill, kinds)
{
    enum {
        COUNT = 4096
    };
    static float data[COUNT];
    for (int kind = 0; kind < FILL_KINDS; kind++) {
        double sum = 0;
        double squares = 0;
        double largest = 0;
        fill_floats(data, COUNT, 7, (fill_kind)kind);
        for (size_t i = 0; i < COUNT; i++) {
            sum += data[i];
            squares += (double)data[i] * data[i];
            largest = fmax(largest, fabs(data[i]));
        }
        static const double most[FILL_KINDS] = {
            [FILL_NORMAL] = 4.9, [FILL_UNIFORM] = 1, [FILL_LARGE] = 1e4,
            [FILL_EQUAL] = 1,    [FILL_ONE_HOT] = 1, [FILL_TINY] = 1e-20,
        };
        const char *name = fill_kind_name((fill_kind)kind);
        cr_expect(largest <= most[kind] * 1.000001, "%s: %g", name, largest);
        if (kind == FILL_EQUAL)
            cr_expect(fabs(squares * COUNT / (sum * sum) - 1) < 1e-6, "%s", name);
        else
            cr_expect_gt(largest, most[kind] * 0.6, "%s: %g", name, largest);
        if (kind == FILL_NORMAL)
            cr_expect(fabs(sum / COUNT) < 0.1 && fabs(squares / COUNT - 1) < 0.1, "%s", name);
        if (kind == FILL_ONE_HOT)
            cr_expect_eq(sum, COUNT / 16, "%s", name);
    }
}

Test(fill, a_longer_array_begins_with_the_shorter)
{
    float few[5], many[50];
    for (int kind = 0; kind < FILL_KINDS; kind++) {
        fill_floats(few, 5, 3, (fill_kind)kind);
        fill_floats(many, 50, 3, (fill_kind)kind);
        cr_expect_arr_eq(few, many, sizeof few, "%s", fill_kind_name((fill_kind)kind));
    }
}

Test(fill, masks_and_lengths_stay_in_range)
{
    unsigned char mask[1000];
    int32_t lengths[1000];
    size_t ones = 0;
    size_t largest = 0;
    fill_mask(mask, 1000, 5, 0.75);
    fill_lengths(lengths, 1000, 5, 3);
    for (size_t i = 0; i < 1000; i++) {
        cr_assert(mask[i] <= 1);
        cr_assert(lengths[i] >= 0 && lengths[i] <= 3);
        ones += mask[i];
        largest += lengths[i] == 3;
    }
    cr_expect(ones > 650 && ones < 850, "%zu", ones);
    cr_expect(largest > 150 && largest < 350, "%zu", largest);
    fill_mask(mask, 1000, 5, 0);
    cr_expect_eq(mask[0], 0);
    fill_mask(mask, 1000, 5, 1);
    cr_expect_eq(mask[0], 1);
    fill_lengths(lengths, 1000, 5, 0);
    cr_expect_eq(lengths[999], 0);
}
