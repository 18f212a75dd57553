/* Attention on plain host arrays, on the best device there is: 2 heads, 3 queries, 4 keys. */
#include <mha.h>
#include <math.h>
#include <stdio.h>

enum {
    HEADS = 2,
    QUERIES = 3,
    KEYS = 4,
    DIM = 8
};
static float query[HEADS][QUERIES][DIM], key[HEADS][KEYS][DIM], value[HEADS][KEYS][DIM];
static float output[HEADS][QUERIES][DIM], probs[HEADS][QUERIES][KEYS];

static void print_message(void *data, mha_log_level level, const char *text)
{
    fprintf(stderr, "libmha: %s\n", text);
    (void)data, (void)level;
}

int main(void)
{
    query[0][0][0] = key[0][1][0] = 4; /* in head 0 query 0 looks for key 1; the others for none */
    for (int i = 0; i < HEADS * KEYS; i++)
        value[i / KEYS][i % KEYS][0] = (float)(i % KEYS);

    const mha_context_options options = { .log.fn = print_message };
    const mha_attention_desc desc = { .batch = 1,
                                      .heads = HEADS,
                                      .query_len = QUERIES,
                                      .key_len = KEYS,
                                      .head_dim = DIM,
                                      .uses = MHA_USES_PROBS };
    const mha_host_args args = { .query.data = query,
                                 .key.data = key,
                                 .value.data = value,
                                 .output.data = output,
                                 .probs.data = probs };
    mha_context *context = NULL;
    mha_attention *attention = NULL;
    mha_status status = mha_context_create(&context, &options);
    if (!status)
        status = mha_attention_create(&attention, context, &desc);
    if (!status)
        status = mha_attention_run(attention, &args);
    mha_attention_destroy(&attention);
    mha_context_destroy(&context);

    int wrong = status != MHA_OK;
    for (int i = 0; !status && i < HEADS * QUERIES; i++) {
        const float *p = probs[i / QUERIES][i % QUERIES];
        const float mean = 0 * p[0] + 1 * p[1] + 2 * p[2] + 3 * p[3];
        const float got = output[i / QUERIES][i % QUERIES][0];
        printf("head %d query %d: probs %.3f %.3f %.3f %.3f, output %.3f\n", i / QUERIES,
               i % QUERIES, p[0], p[1], p[2], p[3], got);
        wrong |= !(fabsf(p[0] + p[1] + p[2] + p[3] - 1) < 1e-5f && fabsf(got - mean) < 1e-5f);
    }
    return wrong;
}
