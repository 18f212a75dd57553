/* Token by token with a cache of keys and values, on the caller's own OpenCL objects: a prompt
 * joins the cache in one call, then each step appends one token and attends to all before it. There
 * is no model here: random numbers stand for what its projections would give. At the end, one
 * causal pass over all tokens, which reads the cache in place, must give what the steps gave. */
#include <mha.h>
#include <math.h>
#include <stdio.h>

enum {
    HEADS = 8,
    KV_HEADS = 2,
    DIM = 64,
    WIDTH = (HEADS + 2 * KV_HEADS) * DIM,
    CAPACITY = 128,
    PROMPT = 16,
    STEPS = 64,
    TOKENS = PROMPT + STEPS
};

/* Both sides sum float32 products of the same float16 keys and values, in another order. */
static const double tolerance = 1e-5;

/* Query, new key and new value of each token side by side, as one projection leaves them, and how
 * many tokens the cache holds. Static: the device reads both after an enqueue has returned. */
static float tokens[TOKENS][WIDTH];
static int32_t past;

static float cosines[CAPACITY][DIM / 2], sines[CAPACITY][DIM / 2];
static float stepped[TOKENS][HEADS][DIM], whole[TOKENS][HEADS][DIM];

/* All that is made, in the order of making; zero where it is not made yet. */
typedef struct program {
    int errors; /* that the library has explained */
    cl_device_id device;
    cl_context cl;
    cl_command_queue queue;
    mha_context *context;
    mha_attention *step, *pass;
    mha_rotary *rotary;
    cl_mem tokens, output, key_cache, value_cache, cosines, sines, workspace;
} program;

static void print_message(void *data, mha_log_level level, const char *text)
{
    if (level == MHA_LOG_ERROR)
        ++*(int *)data;
    fprintf(stderr, "%s: %s\n", level == MHA_LOG_ERROR ? "error" : "note", text);
}

/* The device that the library would choose, but in a context of our own. */
static mha_status open_device(program *p)
{
    mha_context_options options = { .log = { .fn = print_message, .data = &p->errors } };
    mha_device_info infos[64];
    size_t count = 0;
    mha_status status = mha_devices(&options.log, infos, 64, &count);
    for (size_t i = 0; i < count && i < 64; i++) {
        if (infos[i].is_default) {
            printf("%s, %s\n", infos[i].name, infos[i].platform_name);
            p->device = infos[i].device;
        }
    }
    if (!status && !p->device)
        status = MHA_NO_DEVICE;
    if (!status)
        p->cl = clCreateContext(NULL, 1, &p->device, NULL, NULL, &status);
    if (!status)
        p->queue = clCreateCommandQueue(p->cl, p->device, 0, &status);
    options.cl = p->cl;
    options.device = p->device;
    return status ? status : mha_context_create(&p->context, &options);
}

/* `step` takes the prompt and the tokens after it: query_len and new_len are the most of any call,
 * key_len the capacity of the cache. `pass` attends to the same memory and appends nothing. */
static mha_status make_objects(program *p)
{
    const mha_attention_desc step = { .batch = 1,
                                      .heads = HEADS,
                                      .kv_heads = KV_HEADS,
                                      .query_len = PROMPT,
                                      .key_len = CAPACITY,
                                      .head_dim = DIM,
                                      .key_value_type = MHA_FLOAT16,
                                      .uses = MHA_USES_CAUSAL | MHA_USES_APPEND | MHA_USES_ROTARY,
                                      .diagonal = MHA_AFTER_PAST,
                                      .new_len = PROMPT,
                                      .rotary_positions = CAPACITY };
    const mha_attention_desc pass = { .batch = 1,
                                      .heads = HEADS,
                                      .kv_heads = KV_HEADS,
                                      .query_len = TOKENS,
                                      .key_len = TOKENS,
                                      .head_dim = DIM,
                                      .key_value_type = MHA_FLOAT16,
                                      .uses = MHA_USES_CAUSAL,
                                      .diagonal = MHA_TOP_LEFT };
    const mha_rotary_desc rotary = {
        .batch = 1, .heads = HEADS, .len = TOKENS, .dim = DIM, .positions = CAPACITY
    };
    mha_status status = mha_attention_create(&p->step, p->context, &step);
    if (!status)
        status = mha_attention_create(&p->pass, p->context, &pass);
    return status ? status : mha_rotary_create(&p->rotary, p->context, &rotary);
}

/* A buffer with a copy of `data`, or of undefined content. */
static cl_mem make_buffer(program *p, size_t bytes, void *data, mha_status *status)
{
    const cl_mem_flags flags = CL_MEM_READ_WRITE | (data ? CL_MEM_COPY_HOST_PTR : 0);
    return *status ? NULL : clCreateBuffer(p->cl, flags, bytes, data, status);
}

/* One workspace for all three objects: their calls follow each other in one queue. */
static mha_status make_buffers(program *p)
{
    const size_t cache_bytes = sizeof(cl_half) * KV_HEADS * CAPACITY * DIM;
    const size_t needs[] = { mha_attention_workspace(p->step).bytes,
                             mha_attention_workspace(p->pass).bytes,
                             mha_rotary_workspace(p->rotary).bytes };
    size_t most = 0;
    for (int i = 0; i < 3; i++)
        most = needs[i] > most ? needs[i] : most;
    mha_status status = MHA_OK;
    p->tokens = make_buffer(p, sizeof tokens, NULL, &status);
    p->output = make_buffer(p, sizeof stepped, NULL, &status);
    p->key_cache = make_buffer(p, cache_bytes, NULL, &status);
    p->value_cache = make_buffer(p, cache_bytes, NULL, &status);
    p->cosines = make_buffer(p, sizeof cosines, cosines, &status);
    p->sines = make_buffer(p, sizeof sines, sines, &status);
    if (most)
        p->workspace = make_buffer(p, most, NULL, &status);
    return status;
}

/* Rows of `width` elements, a token each, from element `offset` on, as [1][heads][len][DIM]. */
static mha_tensor by_token(cl_mem buffer, size_t width, size_t offset)
{
    const mha_tensor tensor = { buffer, offset, { 0, DIM, width, 1 } };
    return tensor;
}

/* The next `count` tokens join the cache and attend to it. The cache is packed at its capacity: the
 * call leaves key_len 0, and append_positions say how much of it is filled. */
static mha_status run_step(program *p, size_t count)
{
    const size_t first = (size_t)past, at = first * WIDTH;
    const mha_attention_args args = {
        .query_len = count,
        .new_len = count,
        .query = by_token(p->tokens, WIDTH, at),
        .output = by_token(p->output, HEADS * DIM, first * HEADS * DIM),
        .key.buffer = p->key_cache,
        .value.buffer = p->value_cache,
        .new_key = by_token(p->tokens, WIDTH, at + HEADS * DIM),
        .new_value = by_token(p->tokens, WIDTH, at + (HEADS + KV_HEADS) * DIM),
        .append_positions.host = &past,
        .rotary_cos.buffer = p->cosines,
        .rotary_sin.buffer = p->sines,
    };
    mha_status status = clEnqueueWriteBuffer(p->queue, p->tokens, CL_FALSE, first * sizeof *tokens,
                                             count * sizeof *tokens, tokens[first], 0, NULL, NULL);
    if (!status)
        status = mha_attention_enqueue(p->step, &args,
                                       &(mha_call){ .queue = p->queue, .workspace = p->workspace });
    /* The next token depends on this output, so a program waits here; then `past` may change. */
    if (!status)
        status = clEnqueueReadBuffer(p->queue, p->output, CL_TRUE, first * sizeof *stepped,
                                     count * sizeof *stepped, stepped[first], 0, NULL, NULL);
    if (!status)
        past += (int32_t)count;
    return status;
}

/* Between -1 and 1, the same ones everywhere (Marsaglia's xorshift). */
static void fill(float *values, size_t count)
{
    static uint32_t state = 1;
    while (count--) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        *values++ = (float)(state >> 8) / 8388608.0f - 1;
    }
}

static mha_status generate(program *p)
{
    mha_status status = MHA_OK;
    for (int step = 0; step <= STEPS && !status; step++) {
        const size_t count = step ? 1 : PROMPT;
        fill(tokens[past], count * WIDTH);
        status = run_step(p, count);
        if (!status && step && step % 16 == 0)
            printf("step %d: %d keys, output %.4f %.4f %.4f ...\n", step, (int)past,
                   stepped[past - 1][0][0], stepped[past - 1][0][1], stepped[past - 1][0][2]);
    }
    return status;
}

/* Keys are rotated in the cache, queries only within the calls: here they are, where they lie. */
static mha_status run_pass(program *p)
{
    const mha_call call = { .queue = p->queue, .workspace = p->workspace };
    const mha_tensor queries = by_token(p->tokens, WIDTH, 0);
    const mha_rotary_args rotary = {
        .input = queries, .output = queries, .cos.buffer = p->cosines, .sin.buffer = p->sines
    };
    const mha_attention_args args = {
        .query = queries,
        .key = { .buffer = p->key_cache, .strides = { 0, CAPACITY * DIM, DIM, 1 } },
        .value = { .buffer = p->value_cache, .strides = { 0, CAPACITY * DIM, DIM, 1 } },
        .output = by_token(p->output, HEADS * DIM, 0),
    };
    mha_status status = mha_rotary_enqueue(p->rotary, &rotary, &call);
    if (!status)
        status = mha_attention_enqueue(p->pass, &args, &call);
    if (!status)
        status = clEnqueueReadBuffer(p->queue, p->output, CL_TRUE, 0, sizeof whole, whole, 0, NULL,
                                     NULL);
    return status;
}

static void release(program *p)
{
    /* After a failure, earlier commands may still be running in our arrays and buffers. */
    if (p->queue)
        clFinish(p->queue);
    mha_attention_destroy(&p->step);
    mha_attention_destroy(&p->pass);
    mha_rotary_destroy(&p->rotary);
    mha_context_destroy(&p->context);
    const cl_mem buffers[] = { p->tokens,  p->output, p->key_cache, p->value_cache,
                               p->cosines, p->sines,  p->workspace };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        if (buffers[i])
            clReleaseMemObject(buffers[i]);
    }
    if (p->queue)
        clReleaseCommandQueue(p->queue);
    if (p->cl)
        clReleaseContext(p->cl);
    mha_clblast_clear();
}

int main(void)
{
    program p = { 0 };
    for (int i = 0; i < CAPACITY * (DIM / 2); i++) {
        const double angle = i / (DIM / 2) * pow(10000, -2.0 * (i % (DIM / 2)) / DIM);
        (&cosines[0][0])[i] = (float)cos(angle);
        (&sines[0][0])[i] = (float)sin(angle);
    }
    mha_status status = open_device(&p);
    if (!status)
        status = make_objects(&p);
    if (!status)
        status = make_buffers(&p);
    if (!status)
        status = generate(&p);
    if (!status)
        status = run_pass(&p);
    release(&p);
    /* The library has said its sentence; OpenCL's codes, which are statuses too, come without. */
    if (status && !p.errors)
        fprintf(stderr, "error: %s, %s\n", mha_status_name(status), mha_status_text(status));
    if (status)
        return 1;

    double worst = 0;
    for (int i = 0; i < TOKENS * HEADS * DIM; i++) {
        const double difference = fabs((double)(&stepped[0][0][0])[i] - (&whole[0][0][0])[i]);
        worst = difference > worst || isnan(difference) ? difference : worst;
    }
    printf("one causal pass over all %d tokens differs by at most %.1e\n", TOKENS, worst);
    return !(worst <= tolerance);
}
