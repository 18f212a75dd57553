/* The article's layer against the reference: widths, flags, layouts of inputs and weights in a
 * seeded cross, then what loads and stages promise. */
#include "layer_case.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const uint64_t sets_of_uses[] = {
    0,
    MHA_USES_KEY_LENGTHS,
    MHA_USES_KEY_LENGTHS_PER_QUERY,
    MHA_USES_CAUSAL,
    MHA_USES_BIAS | MHA_USES_MASK,
    MHA_USES_CAUSAL | MHA_USES_KEY_LENGTHS,
};

/* Widths that all differ, or one that all share. */
static void pick_widths(mha_layer_desc *desc, uint64_t seed)
{
    static const size_t widths[] = { 1, 3, 16, 17, 33, 48, 64, 65 };
    const size_t num = sizeof widths / sizeof widths[0];
    desc->query_width = widths[compare_pick(seed, 10, num)];
    if (compare_pick(seed, 11, 2))
        return;
    desc->key_width = widths[compare_pick(seed, 12, num)];
    desc->value_width = widths[compare_pick(seed, 13, num)];
    if (!(desc->flags & MHA_LAYER_MERGED_OUTPUT))
        desc->output_width = widths[compare_pick(seed, 14, num)];
}

static layer_case pick_case(uint64_t seed)
{
    static const size_t lengths[] = { 1, 2, 3, 15, 16, 17, 31, 33, 65 };
    static const size_t dims[] = { 1, 3, 8, 16, 17, 33 };
    static const attention_layout layouts[] = { LAYOUT_PACKED, LAYOUT_LEN_FIRST, LAYOUT_GAPS };
    const size_t num = sizeof lengths / sizeof lengths[0];
    layer_case c = { .seed = seed * 64 };
    mha_attention_desc *a = &c.desc.attention;
    a->batch = 1 + compare_pick(seed, 0, 3);
    a->kv_heads = 1 + compare_pick(seed, 1, 3);
    a->heads = a->kv_heads * (1 + compare_pick(seed, 2, 2));
    a->head_dim = dims[compare_pick(seed, 3, 6)];
    a->value_dim = compare_pick(seed, 4, 2) ? 0 : dims[compare_pick(seed, 5, 6)];
    a->uses = sets_of_uses[compare_pick(seed, 6, sizeof sets_of_uses / sizeof sets_of_uses[0])];
    a->diagonal = a->uses & MHA_USES_CAUSAL ? MHA_BOTTOM_RIGHT : MHA_DIAGONAL_NONE;
    a->uses |= compare_pick(seed, 7, 2) ? MHA_USES_PROBS | MHA_USES_LSE : 0;
    c.desc.flags = (unsigned)compare_pick(seed, 8, 64);
    if (c.desc.flags & MHA_LAYER_MERGED_OUTPUT)
        c.desc.flags &= ~MHA_LAYER_BIAS_OUTPUT;
    pick_widths(&c.desc, seed);
    c.query_len = lengths[compare_pick(seed, 15, num)];
    c.key_len = lengths[compare_pick(seed, 16, num)];
    c.self = !c.desc.key_width && compare_pick(seed, 17, 2);
    if (c.self)
        c.key_len = c.query_len;
    a->query_len = c.query_len + 3 * compare_pick(seed, 18, 2);
    a->key_len = 65;
    c.layout = layouts[compare_pick(seed, 19, 3)];
    c.weights = (layer_weights)compare_pick(seed, 20, NUM_WEIGHTS);
    c.lengths_on_device = compare_pick(seed, 21, 2);
    return c;
}

Test(layer, cross)
{
    enum {
        SEEDS = 80
    };
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (uint64_t n = 0; n < SEEDS; n++)
        for (int by = MHA_GEMM_DEFAULT; by <= MHA_GEMM_KERNEL; by++) {
            layer_case c = pick_case(900 + n);
            c.desc.projection = (mha_gemm_by)by;
            c.desc.attention.gemm = (mha_gemm_by)((by + (int)n) % 3);
            if (n % 8 || by != MHA_GEMM_DEFAULT) /* another path may build a program a shape */
                c.desc.attention.path = MHA_PATH_COMPOSED;
            layer_check(&d, &c, &worst);
        }
    compare_log("layer", 3 * SEEDS, &worst);
    device_close(&d);
}

/* Defaults of widths, one row, no rows, no keys, the widths of a real layer. */
Test(layer, edges)
{
    static const layer_case cases[] = {
        { .desc = { .attention = { .batch = 2, .heads = 4, .query_len = 7, .key_len = 9 },
                    .query_width = 32,
                    .flags = MHA_LAYER_BIAS_ALL } },
        { .desc = { .attention = { .batch = 2, .heads = 4, .query_len = 7, .key_len = 9 },
                    .model_width = 32,
                    .query_width = 20,
                    .flags = MHA_LAYER_MERGED_OUTPUT } },
        { .desc = { .attention = { ATTENTION_SIZES(2, 4, 7, 9, 8) } }, .layout = LAYOUT_LEN_FIRST },
        { .desc = { .attention = { ATTENTION_SIZES(1, 1, 1, 1, 1) },
                    .flags = MHA_LAYER_BIAS_ALL } },
        { .desc = { .attention = { ATTENTION_SIZES(0, 2, 3, 4, 5) } } },
        { .desc = { .attention = { ATTENTION_SIZES(2, 2, 0, 4, 5) } } },
        /* The heads are 0, and the output is its bias. */
        { .desc = { .attention = { ATTENTION_SIZES(2, 2, 3, 0, 5) },
                    .flags = MHA_LAYER_BIAS_ALL } },
        { .desc = { .attention = { .batch = 2,
                                   .heads = 8,
                                   .query_len = 50,
                                   .key_len = 50,
                                   .uses = MHA_USES_KEY_LENGTHS },
                    .query_width = 256,
                    .flags = MHA_LAYER_BIAS_ALL | MHA_LAYER_OUT_IN },
          .weights = WEIGHTS_TOGETHER,
          .self = true },
    };
    device d;
    compare_worst worst = { 0 };
    device_open(&d);
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        for (int by = MHA_GEMM_DEFAULT; by <= MHA_GEMM_KERNEL; by++) {
            layer_case c = cases[n];
            c.seed = 64 * n;
            c.desc.projection = c.desc.attention.gemm = (mha_gemm_by)by;
            layer_check(&d, &c, &worst);
        }
    compare_log("layer at the edges", 3 * sizeof cases / sizeof cases[0], &worst);
    device_close(&d);
}

static const layer_case small_case = {
    .desc = { .attention = { ATTENTION_SIZES(2, 4, 17, 33, 8), .kv_heads = 2 },
              .query_width = 24,
              .key_width = 20,
              .value_width = 28,
              .output_width = 12,
              .flags = MHA_LAYER_BIAS_ALL },
    .seed = 64,
};

static mha_layer *create(device *d, const layer_case *c)
{
    mha_layer *layer = NULL;
    cr_assert_eq(mha_layer_create(&layer, d->context, &c->desc), MHA_OK, "%s", d->sentence);
    return layer;
}

Test(layer, needs_a_load_and_takes_a_second_one)
{
    device d;
    device_open(&d);
    mha_layer *layer = create(&d, &small_case);
    layer_data *data = layer_data_new(&small_case);
    layer_place(&d, data);
    const mha_call call = device_call(&d, mha_layer_workspace(layer));
    cr_expect_eq(mha_layer_enqueue(layer, &data->tensors.args, &call), MHA_NOT_LOADED);
    cr_expect(strstr(d.sentence, "mha_layer_load"), "%s", d.sentence);
    device_expect_guards(&d, "not loaded");
    device_forget(&d);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        layer_data_fill_weights(data, 100 * seed);
        layer_load(&d, layer, data);
        layer_run(&d, layer, data, NULL);
        layer_run(&d, layer, data, NULL);
    }
    mha_layer_destroy(&layer);
    layer_data_free(data);
    device_close(&d);
}

/* Loads and calls in one queue, nobody waits: each call has the weights that were loaded before it,
 * though the caller has released them. */
static void check_loads_between_calls(mha_gemm_by by)
{
    device d;
    device_open(&d);
    layer_case c = small_case;
    c.desc.projection = by;
    mha_layer *layer = create(&d, &c);
    layer_data *data[2];
    for (uint64_t n = 0; n < 2; n++) {
        data[n] = layer_data_new(&c);
        layer_data_fill_weights(data[n], 1000 * (n + 1));
        layer_place(&d, data[n]);
    }
    const mha_call call = device_call(&d, mha_layer_workspace(layer));
    const mha_call load = { .queue = d.queue };
    for (size_t n = 0; n < 2; n++) {
        const mha_layer_weights weights = layer_place_weights(&d, data[n]);
        cr_assert_eq(mha_layer_load(layer, &weights, &load), MHA_OK, "%s", d.sentence);
        cr_assert_eq(mha_layer_enqueue(layer, &data[n]->tensors.args, &call), MHA_OK, "%s",
                     d.sentence);
    }
    mha_layer_destroy(&layer);
    for (size_t n = 0; n < 2; n++) {
        const size_t count = 2 * 17 * 12;
        device_read(&d, &data[n]->result, data[n]->output);
        compare_all(data[n]->name, "output", data[n]->output, data[n]->want, count,
                    reference_limit(100, 8), NULL);
        layer_data_free(data[n]);
    }
    device_expect_guards(&d, "loads between calls");
    device_close(&d);
}

Test(layer, loads_between_calls_need_no_waiting)
{
    for (int by = MHA_GEMM_DEFAULT; by <= MHA_GEMM_KERNEL; by++)
        check_loads_between_calls((mha_gemm_by)by);
}

/* "stage: what" a line, as the callback is told. */
static void note_stage(void *data, const char *stage, const char *what, cl_event event)
{
    char *text = data;
    const size_t used = strlen(text);
    cr_expect_not_null(event);
    snprintf(text + used, 1024 - used, "%s: %s\n", stage, what);
}

static void check_stages(device *d, const layer_case *c, const char *want, const char *explain)
{
    char text[1024] = "";
    char explained[2048];
    mha_layer *layer = create(d, c);
    layer_data *data = layer_data_new(c);
    layer_load(d, layer, data);
    data->attention->stage = note_stage;
    data->attention->stage_data = text;
    layer_run(d, layer, data, NULL);
    cr_expect_str_eq(text, want, "%s: the stages are\n%s", data->name, text);
    const size_t length = mha_layer_explain(layer, explained, sizeof explained);
    cr_expect_eq(length, strlen(explained));
    cr_expect(strstr(explained, explain) == explained, "%s: explain says\n%s", data->name,
              explained);
    cr_expect(strstr(explained, "\npath composed"), "%s: explain says\n%s", data->name, explained);
    mha_layer_destroy(&layer);
    layer_data_free(data);
}

/* Without biases there is no stage for them; packed rows of all batches are one product, others are
 * not. */
Test(layer, stages_and_explain_agree)
{
    device d;
    device_open(&d);
    layer_case c = small_case;
    c.desc.attention.path = MHA_PATH_COMPOSED;
    c.desc.attention.gemm = MHA_GEMM_KERNEL;
    c.desc.attention.tiling = MHA_TILING_GPU;
    c.desc.projection = MHA_GEMM_CLBLAST;
    c.desc.flags = MHA_LAYER_BIAS_QUERY;
    check_stages(&d, &c,
                 "bias: gemm_fill_bias\nproject query: CLBlastSgemm\n"
                 "project key: CLBlastSgemm\nproject value: CLBlastSgemm\n"
                 "scores: scores_tile\nsoftmax: softmax_rows\nprobs value: weigh_tile\n"
                 "project output: CLBlastSgemm\n",
                 "project query: CLBlast, as asked\nproject key: CLBlast, as asked\n"
                 "project value: CLBlast, as asked\nproject output: CLBlast, as asked\n");
    c.desc.flags = MHA_LAYER_MERGED_OUTPUT;
    c.desc.output_width = 0;
    c.layout = LAYOUT_GAPS;
    check_stages(&d, &c,
                 "project query: CLBlastSgemmStridedBatched\n"
                 "project key: CLBlastSgemmStridedBatched\n"
                 "project value: CLBlastSgemmStridedBatched\n"
                 "scores: scores_tile\nsoftmax: softmax_rows\nprobs value: weigh_tile\n",
                 "project query: CLBlast, as asked\nproject key: CLBlast, as asked\n"
                 "project value: CLBlast, as asked\npath ");
    device_close(&d);
}

/* Weights are packed at load, once, and not again in a call. */
static void check_load_packs(device *d, const layer_case *c)
{
    char text[1024] = "";
    mha_layer *layer = create(d, c);
    layer_data *data = layer_data_new(c);
    const mha_layer_weights weights = layer_place_weights(d, data);
    const mha_call load = { .queue = d->queue, .stage = note_stage, .stage_data = text };
    cr_assert_eq(mha_layer_load(layer, &weights, &load), MHA_OK, "%s", d->sentence);
    cr_expect_str_eq(text, "load weights: gemm_cpu_pack\nload bias: heads_copy\n"
                           "load weights: gemm_cpu_pack\nload bias: heads_copy\n"
                           "load weights: gemm_cpu_pack\nload bias: heads_copy\n"
                           "load weights: gemm_cpu_pack\nload bias: heads_copy\n");
    clFinish(d->queue);
    mha_layer_destroy(&layer);
    layer_data_free(data);
    device_forget(d);
}

Test(layer, stages_of_a_cpu)
{
    device d;
    device_open(&d);
    layer_case c = small_case;
    c.desc.attention.path = MHA_PATH_COMPOSED;
    const char *stages = "project query: gemm_cpu_multiply\nproject key: gemm_cpu_multiply\n"
                         "project value: gemm_cpu_multiply\nsplit query: heads_copy\n"
                         "split key: heads_copy\nscores: gemm_cpu_multiply\n"
                         "softmax: softmax_rows\nsplit value: heads_copy\n"
                         "probs value: gemm_cpu_multiply\nmerge heads: heads_copy\n"
                         "project output: gemm_cpu_multiply\n";
    if (device_is_cpu(&d))
        check_stages(&d, &c, stages,
                     "project query: the library's CPU kernel, the default on a CPU\n");
    c.desc.projection = MHA_GEMM_KERNEL;
    if (device_is_cpu(&d))
        check_stages(&d, &c, stages, "project query: the library's CPU kernel, as asked\n");
    if (device_is_cpu(&d))
        check_load_packs(&d, &c);
    device_close(&d);
}

/* Two query heads of 32 that share one of keys and one of values: whole panels of weights on every
 * device, and 1.5 times as many columns as the queries have. */
static const layer_case self_case = {
    .desc = { .attention = { ATTENTION_SIZES(2, 2, 17, 17, 32), .kv_heads = 1 },
              .query_width = 24,
              .flags = MHA_LAYER_BIAS_ALL | MHA_LAYER_OUT_IN },
    .self = true,
    .seed = 64 * 7,
};

/* How many launches project inputs. */
static size_t count_projections(device *d, const layer_case *c, const char *stage)
{
    char text[1024] = "";
    size_t found = 0;
    mha_layer *layer = create(d, c);
    layer_data *data = layer_data_new(c);
    layer_load(d, layer, data);
    data->attention->stage = note_stage;
    data->attention->stage_data = text;
    layer_run(d, layer, data, NULL);
    for (const char *at = text; (at = strstr(at, stage)); at++)
        found++;
    mha_layer_destroy(&layer);
    layer_data_free(data);
    return found;
}

/* Tokens that are queries, keys and values at once go through one product, however they lie and
 * whoever multiplies; others, of the same layer, go one by one. */
Test(layer, self_attention_projects_its_tokens_at_once)
{
    static const attention_layout layouts[] = { LAYOUT_PACKED, LAYOUT_LEN_FIRST, LAYOUT_GAPS };
    device d;
    device_open(&d);
    for (int by = MHA_GEMM_DEFAULT; by <= MHA_GEMM_KERNEL; by++)
        for (size_t i = 0; i < 3; i++) {
            layer_case c = self_case;
            c.desc.projection = (mha_gemm_by)by;
            c.layout = layouts[i];
            c.desc.flags = i == 1 ? MHA_LAYER_OUT_IN : c.desc.flags;
            cr_expect_eq(count_projections(&d, &c, "project query, key, value: "), 1);
            c.query_len = c.key_len = 1 + 8 * i;
            cr_expect_eq(count_projections(&d, &c, "project query, key, value: "), 1);
            c.self = false;
            cr_expect_eq(count_projections(&d, &c, "project "), 4);
            cr_expect_eq(count_projections(&d, &c, "project query, key, value: "), 0);
        }
    device_close(&d);
}

/* What cannot share its weights' memory is projected one by one. */
Test(layer, what_does_not_fit_together_is_projected_apart)
{
    device d;
    device_open(&d);
    layer_case c = self_case;
    c.desc.flags = MHA_LAYER_BIAS_KEY;
    cr_expect_eq(count_projections(&d, &c, "project "), 4);
    c = self_case;
    c.desc.attention.head_dim = 20; /* no whole panels */
    c.desc.projection = MHA_GEMM_KERNEL;
    cr_expect_eq(count_projections(&d, &c, "project "), device_is_cpu(&d) ? 4 : 2);
    device_close(&d);
}
