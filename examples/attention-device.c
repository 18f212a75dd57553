/* A whole multi-head attention layer on the caller's own OpenCL objects: context, queue, buffers
 * and events are this program's, and nothing waits before the results are read.
 *
 * Values and outputs go through identity weights, so that the result can be checked by hand: each
 * head's output is the mean of its part of the input, weighted by its probabilities. */
#include <mha.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    BATCH = 2,
    HEADS = 4,
    LEN = 5,
    DIM = 8,
    WIDTH = HEADS * DIM
};

/* Read by the device until the call's event completes, so not on a stack that may end before. */
static const int32_t key_lengths[BATCH] = { LEN, 3 };

static float input[BATCH][LEN][WIDTH], random_weights[2][WIDTH][WIDTH], identity[WIDTH][WIDTH];
static float output[BATCH][LEN][WIDTH], probs[BATCH][HEADS][LEN][LEN];

/* All that is made, in the order of making; zero where it is not made yet. */
typedef struct program {
    cl_device_id device;
    cl_context cl;
    cl_command_queue queue;
    cl_mem input, output, probs, weights[4], workspace;
    mha_context *context;
    mha_layer *layer;
} program;

static void print_message(void *data, mha_log_level level, const char *text)
{
    (void)data;
    fprintf(stderr, "%s: %s\n", level == MHA_LOG_ERROR ? "error" : "note", text);
}

/* OpenCL's codes are statuses of the library too, so that one chain carries both. */
static mha_status report(mha_status status, const char *step)
{
    if (status)
        fprintf(stderr, "%s: %s, %s\n", step, mha_status_name(status), mha_status_text(status));
    return status;
}

/* The device that the library would choose, but in a context of our own. */
static mha_status open_device(program *p)
{
    const mha_log log = { .fn = print_message };
    mha_device_info infos[64];
    size_t count = 0;
    mha_status status = mha_devices(&log, infos, 64, &count);
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
    return report(status, "opening a device");
}

/* A buffer with a copy of `data`, or of undefined content. */
static cl_mem make_buffer(program *p, size_t bytes, void *data, mha_status *status)
{
    const cl_mem_flags flags = CL_MEM_READ_WRITE | (data ? CL_MEM_COPY_HOST_PTR : 0);
    return *status ? NULL : clCreateBuffer(p->cl, flags, bytes, data, status);
}

static mha_status make_buffers(program *p)
{
    mha_status status = MHA_OK;
    p->input = make_buffer(p, sizeof input, NULL, &status);
    p->output = make_buffer(p, sizeof output, NULL, &status);
    p->probs = make_buffer(p, sizeof probs, NULL, &status);
    for (int i = 0; i < 4; i++)
        p->weights[i] =
            make_buffer(p, sizeof identity, i < 2 ? random_weights[i] : identity, &status);
    return report(status, "making buffers");
}

static mha_status make_layer(program *p)
{
    const mha_context_options options = { .cl = p->cl,
                                          .device = p->device,
                                          .log = { .fn = print_message } };
    const mha_layer_desc desc = { .attention = { .batch = BATCH,
                                                 .heads = HEADS,
                                                 .query_len = LEN,
                                                 .key_len = LEN,
                                                 .uses = MHA_USES_KEY_LENGTHS | MHA_USES_PROBS },
                                  .query_width = WIDTH };
    mha_status status = mha_context_create(&p->context, &options);
    if (!status)
        status = mha_layer_create(&p->layer, p->context, &desc);
    if (!status) {
        const size_t bytes = mha_layer_workspace(p->layer).bytes;
        if (bytes)
            p->workspace = make_buffer(p, bytes, NULL, &status);
    }
    return report(status, "making the layer");
}

/* Upload, load and layer follow each other in one in-order queue; the events are only there to show
 * where they go, and would be needed between queues. */
static mha_status run_layer(program *p)
{
    cl_event uploaded = NULL, done = NULL;
    const mha_layer_weights weights = { .query.buffer = p->weights[0],
                                        .key.buffer = p->weights[1],
                                        .value.buffer = p->weights[2],
                                        .output.buffer = p->weights[3] };
    const mha_attention_args args = { .query.buffer = p->input,
                                      .key.buffer = p->input,
                                      .value.buffer = p->input,
                                      .output.buffer = p->output,
                                      .probs.buffer = p->probs,
                                      .key_lengths.host = key_lengths };
    mha_status status = mha_layer_load(p->layer, &weights, &(mha_call){ .queue = p->queue });
    if (!status)
        status = clEnqueueWriteBuffer(p->queue, p->input, CL_FALSE, 0, sizeof input, input, 0, NULL,
                                      &uploaded);
    if (!status)
        status = mha_layer_enqueue(p->layer, &args,
                                   &(mha_call){ .queue = p->queue,
                                                .workspace = p->workspace,
                                                .num_waits = 1,
                                                .waits = &uploaded,
                                                .event = &done });
    if (!status)
        status = clEnqueueReadBuffer(p->queue, p->probs, CL_FALSE, 0, sizeof probs, probs, 1, &done,
                                     NULL);
    if (!status)
        status = clEnqueueReadBuffer(p->queue, p->output, CL_TRUE, 0, sizeof output, output, 1,
                                     &done, NULL);
    /* Also after a failure: earlier stages may still be running in our buffers. */
    clFinish(p->queue);
    if (uploaded)
        clReleaseEvent(uploaded);
    if (done)
        clReleaseEvent(done);
    return report(status, "running the layer");
}

static void release(program *p)
{
    mha_layer_destroy(&p->layer);
    mha_context_destroy(&p->context);
    const cl_mem buffers[] = { p->input,      p->output,     p->probs,      p->workspace,
                               p->weights[0], p->weights[1], p->weights[2], p->weights[3] };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        if (buffers[i])
            clReleaseMemObject(buffers[i]);
    }
    if (p->queue)
        clReleaseCommandQueue(p->queue);
    if (p->cl)
        clReleaseContext(p->cl);
    /* CLBlast would keep the context until the process ends. */
    mha_clblast_clear();
}

static float random_float(void)
{
    return (float)rand() / (float)RAND_MAX - 0.5f;
}

static void fill(void)
{
    for (int i = 0; i < BATCH * LEN * WIDTH; i++)
        (&input[0][0][0])[i] = 2 * random_float();
    for (int i = 0; i < 2 * WIDTH * WIDTH; i++)
        (&random_weights[0][0][0])[i] = random_float();
    for (int i = 0; i < WIDTH; i++)
        identity[i][i] = 1;
}

/* NaN counts as the largest of all. */
static double larger(double a, double b)
{
    return b > a || isnan(b) ? b : a;
}

/* The largest difference of a sum of probabilities from 1, and of an output from its mean. */
static void compare(double *worst_sum, double *worst_output)
{
    for (int row = 0; row < BATCH * HEADS * LEN; row++) {
        const int b = row / (HEADS * LEN), h = row / LEN % HEADS, i = row % LEN;
        double sum = 0;
        for (int j = 0; j < LEN; j++)
            sum += probs[b][h][i][j];
        *worst_sum = larger(*worst_sum, fabs(sum - 1));
        for (int d = h * DIM; d < (h + 1) * DIM; d++) {
            double mean = 0;
            for (int j = 0; j < key_lengths[b]; j++)
                mean += (double)probs[b][h][i][j] * input[b][j][d];
            *worst_output = larger(*worst_output, fabs(mean - output[b][i][d]));
        }
    }
}

int main(void)
{
    program p = { 0 };
    fill();
    mha_status status = open_device(&p);
    if (!status)
        status = make_buffers(&p);
    if (!status)
        status = make_layer(&p);
    if (!status)
        status = run_layer(&p);
    release(&p);
    if (status)
        return 1;

    double worst_sum = 0, worst_output = 0;
    compare(&worst_sum, &worst_output);
    printf("probabilities of %d rows sum to 1 within %.1e; outputs are right within %.1e\n",
           BATCH * HEADS * LEN, worst_sum, worst_output);
    return !(worst_sum < 1e-5 && worst_output < 1e-4);
}
