/* Matrix products: the only door to CLBlast, and to the library's own kernels beside it. */
#include "gemm.h"

#include "grid.h"
#include "log.h"
#include "shape.h"

#include <clblast_c.h>
#include <limits.h>

/* CLBlast fills process-wide caches without a lock: eight threads at once crash it. The one lock of
 * the library that is not a context's stands around every call of it. */
static mha_mutex clblast_lock = MHA_MUTEX_INIT;

/* Bits of mha_context.warm: the CLBlast routines whose programs are built. */
enum {
    WARM_GEMM = 1,
    WARM_BATCHED = 2
};

mha_status mha_clblast_clear(void)
{
    mha_os_lock(&clblast_lock);
    const mha_status status = CLBlastClearCache();
    mha_os_unlock(&clblast_lock);
    return status;
}

static CLBlastTranspose transposed(bool is)
{
    return is ? CLBlastTransposeYes : CLBlastTransposeNo;
}

/* One plain product. `temp` may be NULL: CLBlast then allocates what it needs. */
static mha_status call_gemm(const mha_gemm_shape *shape, const mha_gemm_launch_args *args,
                            float beta, cl_command_queue queue, cl_mem temp, cl_event *event)
{
    mha_os_lock(&clblast_lock);
    const mha_status status = CLBlastSgemmWithTempBuffer(
        CLBlastLayoutRowMajor, transposed(shape->transpose_a), transposed(shape->transpose_b),
        args->m, args->n, args->k, shape->alpha, args->a.buffer, args->a.offset, args->a.row,
        args->b.buffer, args->b.offset, args->b.row, beta, args->c.buffer, args->c.offset,
        args->c.row, &queue, event, temp);
    mha_os_unlock(&clblast_lock);
    return status;
}

static mha_status call_batched(const mha_gemm_shape *shape, const mha_gemm_launch_args *args,
                               float beta, cl_command_queue queue, cl_event *event)
{
    mha_os_lock(&clblast_lock);
    const mha_status status = CLBlastSgemmStridedBatched(
        CLBlastLayoutRowMajor, transposed(shape->transpose_a), transposed(shape->transpose_b),
        args->m, args->n, args->k, shape->alpha, args->a.buffer, args->a.offset, args->a.row,
        args->a.batch, args->b.buffer, args->b.offset, args->b.row, args->b.batch, beta,
        args->c.buffer, args->c.offset, args->c.row, args->c.batch, args->batch, &queue, event);
    mha_os_unlock(&clblast_lock);
    return status;
}

/* CLBlast builds its programs in the first call of each routine, which takes seconds. A tiny
 * product has that happen here, at create. The caller holds the context's lock. */
static mha_status warm_up(mha_context *context, unsigned bit)
{
    enum {
        SIZE = 4,
        BATCH = 2
    };
    cl_int error = CL_SUCCESS;
    const size_t bytes = 3 * BATCH * SIZE * SIZE * sizeof(float);
    cl_mem buffer = clCreateBuffer(context->cl, CL_MEM_READ_WRITE, bytes, NULL, &error);
    if (!buffer)
        return mha_log_fail(&context->log, error,
                            "clCreateBuffer of %zu bytes to warm up CLBlast "
                            "failed",
                            bytes);
    const mha_gemm_shape shape = { .alpha = 1 };
    const size_t step = SIZE * SIZE;
    const mha_gemm_launch_args args = {
        .batch = BATCH,
        .m = SIZE,
        .n = SIZE,
        .k = SIZE,
        .a = { buffer, 0, SIZE, step },
        .b = { buffer, BATCH * step, SIZE, step },
        .c = { buffer, 2 * BATCH * step, SIZE, step },
    };
    mha_status status = bit == WARM_GEMM ? call_gemm(&shape, &args, 0, context->queue, NULL, NULL)
                                         : call_batched(&shape, &args, 0, context->queue, NULL);
    if (!status)
        status = clFinish(context->queue);
    clReleaseMemObject(buffer);
    if (status)
        return mha_log_fail(&context->log, status, "the first CLBlast product on %s failed",
                            context->device.name);
    context->warm |= bit;
    context->forget = mha_clblast_clear;
    return MHA_OK;
}

/* Whether several batches can be one taller product. */
static bool folds(const mha_gemm_shape *shape)
{
    return shape->shared_b && !shape->transpose_a;
}

/* The most temporary memory that any launch can ask for. CLBlast needs none for a matrix that fills
 * whole tiles from offset 0, so this asks for one that does not, in all three places. */
static mha_status ask_temp(mha_gemm_stage *gemm, mha_context *context)
{
    const mha_gemm_shape *shape = &gemm->shape;
    const size_t m = folds(shape) ? shape->m * shape->batch : shape->m;
    cl_command_queue queue = context->queue;
    mha_os_lock(&clblast_lock);
    const mha_status status = CLBlastSGemmTempBufferSize(
        CLBlastLayoutRowMajor, transposed(shape->transpose_a), transposed(shape->transpose_b), m,
        shape->n, shape->k, 1, (shape->transpose_a ? m : shape->k) + 1, 1,
        (shape->transpose_b ? shape->k : shape->n) + 1, 1, shape->n + 1, &queue,
        &gemm->clblast_bytes);
    mha_os_unlock(&clblast_lock);
    if (status)
        return mha_log_fail(&context->log, status, "CLBlastSGemmTempBufferSize failed");
    return MHA_OK;
}

/* They are one where rows of A and C follow each other. */
static void fold_batches(const mha_gemm_shape *shape, mha_gemm_launch_args *args)
{
    if (folds(shape) && args->batch > 1 && args->m <= INT_MAX / args->batch &&
        args->a.batch == args->m * args->a.row && args->c.batch == args->m * args->c.row) {
        args->m *= args->batch;
        args->batch = 1;
    }
}

mha_gemm_way mha_gemm_choose(const mha_context *context, const mha_gemm_shape *shape,
                             const char **reason)
{
    const bool wants_cpu = shape->tiling == MHA_TILING_DEFAULT
                               ? (context->device.type & CL_DEVICE_TYPE_CPU) != 0
                               : shape->tiling == MHA_TILING_CPU;
    const mha_gemm_way own =
        wants_cpu && mha_gemm_cpu_can(context, shape) ? MHA_GEMM_WAY_CPU : MHA_GEMM_WAY_TILES;
    *reason = "as asked";
    if (!shape->k && shape->by != MHA_GEMM_KERNEL) {
        *reason = "a sum of no terms needs no CLBlast";
        return own;
    }
    if (shape->by != MHA_GEMM_DEFAULT)
        return shape->by == MHA_GEMM_CLBLAST ? MHA_GEMM_WAY_CLBLAST : own;
    const bool by_device = shape->tiling == MHA_TILING_DEFAULT;
    if (own == MHA_GEMM_WAY_CPU)
        *reason = by_device ? "the default on a CPU" : "the default with the CPU tiling";
    else if (wants_cpu)
        *reason = "the default on a device with little local memory";
    else
        *reason = by_device ? "the default on a device that is no CPU"
                            : "the default with the GPU tiling";
    return own == MHA_GEMM_WAY_CPU ? own : MHA_GEMM_WAY_CLBLAST;
}

static mha_status own_kernel(const mha_gemm_stage *gemm, mha_context *context, mha_kernel *out,
                             const char *name)
{
    char options[MHA_PRODUCT_OPTIONS];
    return mha_context_kernel(context, out, "gemm", mha_product_options(options, &gemm->shape),
                              name);
}

/* Of C, or of its float32 copy, once CLBlast has written it. */
static mha_status set_up_activation(mha_gemm_stage *gemm, mha_context *context)
{
    const mha_activation_desc desc = { .rows = gemm->shape.m,
                                       .width = gemm->shape.n,
                                       .kind = gemm->shape.activation,
                                       .alpha = gemm->shape.slope,
                                       .tiling = gemm->shape.tiling };
    const mha_status status =
        mha_activation_resolve(context, "activation", &desc, &gemm->activation_desc);
    return status ? status
                  : mha_activation_setup(&gemm->activation, context, &gemm->activation_desc);
}

static mha_status set_up_clblast(mha_gemm_stage *gemm, mha_context *context)
{
    const mha_gemm_shape *shape = &gemm->shape;
    mha_os_lock(&context->lock);
    mha_status status = ask_temp(gemm, context);
    unsigned bits = 0;
    if (shape->batch == 1 || shape->shared_b || gemm->clblast_bytes)
        bits |= WARM_GEMM;
    if (shape->batch > 1 && !gemm->clblast_bytes)
        bits |= WARM_BATCHED;
    for (unsigned bit = WARM_GEMM; !status && bit <= WARM_BATCHED; bit <<= 1)
        if (bits & bit & ~context->warm)
            status = warm_up(context, bit);
    mha_os_unlock(&context->lock);
    gemm->temp_bytes = gemm->clblast_bytes;
    if (!status && mha_widen_is_needed(shape)) {
        gemm->temp_bytes = 0;
        mha_layout_add(&gemm->temp_bytes, gemm->clblast_bytes);
        status = mha_widen_setup(&gemm->widen, context, shape, &gemm->temp_bytes);
    }
    if (!status && shape->bias)
        status = own_kernel(gemm, context, &gemm->fill_bias, "gemm_fill_bias");
    if (!status && shape->activation)
        status = set_up_activation(gemm, context);
    return status;
}

/* Types that are 0. */
static void resolve_types(mha_gemm_stage *gemm)
{
    mha_gemm_shape *shape = &gemm->shape;
    mha_type *const types[] = { &shape->a_type, &shape->b_type, &shape->c_type, &shape->bias_type };
    if (shape->packed_b && gemm->way != MHA_GEMM_WAY_CPU)
        shape->b_type = MHA_FLOAT32; /* nothing is packed */
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (!*types[i])
            *types[i] = MHA_FLOAT32;
}

mha_status mha_gemm_setup(mha_gemm_stage *gemm, mha_context *context, const mha_gemm_shape *shape)
{
    *gemm = (mha_gemm_stage){ .shape = *shape };
    gemm->way = mha_gemm_choose(context, shape, &gemm->reason);
    resolve_types(gemm);
    mha_status status = MHA_OK;
    if (!shape->batch || !shape->m || !shape->n)
        return MHA_OK; /* nothing is ever launched */
    if (gemm->way == MHA_GEMM_WAY_CPU)
        status = mha_gemm_cpu_setup(&gemm->cpu, context, &gemm->shape);
    else if (gemm->way == MHA_GEMM_WAY_CLBLAST)
        status = set_up_clblast(gemm, context);
    if (!status && gemm->way != MHA_GEMM_WAY_CPU)
        status = own_kernel(gemm, context, &gemm->tile, "gemm_tile");
    if (status)
        mha_gemm_release(gemm);
    return mha_context_note(context, status);
}

void mha_gemm_release(mha_gemm_stage *gemm)
{
    mha_gemm_cpu_release(&gemm->cpu);
    mha_kernel_release(&gemm->tile);
    mha_kernel_release(&gemm->fill_bias);
    mha_activation_release(&gemm->activation);
    mha_widen_release(&gemm->widen);
}

size_t mha_gemm_pack_bytes(const mha_gemm_stage *gemm)
{
    return mha_gemm_cpu_pack_bytes(&gemm->cpu, &gemm->shape);
}

size_t mha_gemm_pack_columns(const mha_gemm_stage *gemm)
{
    return mha_gemm_pack_bytes(gemm) ? gemm->cpu.columns : 1;
}

mha_status mha_gemm_pack_launch(const mha_gemm_stage *gemm, mha_run *run, const char *stage,
                                const mha_view *from, cl_mem to, size_t to_offset)
{
    return mha_gemm_cpu_pack(&gemm->cpu, run, stage, &gemm->shape, from, to, to_offset);
}

static mha_status launch_tile(mha_gemm_stage *gemm, mha_run *run, const char *stage,
                              const mha_gemm_launch_args *args)
{
    const mha_gemm_shape *shape = &gemm->shape;
    mha_arg list[MHA_PRODUCT_ARGS + MHA_PRODUCT_FACTORS];
    mha_product_args(list, shape, args);
    mha_product_factors(list + MHA_PRODUCT_ARGS, shape);
    const mha_grid grid = mha_grid_tiles(args->m, args->n, args->batch);
    return mha_run_launch(run, stage, &gemm->tile, list, sizeof list / sizeof list[0], &grid);
}

/* Whether CLBlast can be given a matrix: its rows must not overlap, inputs' too, and it counts
 * elements in int, some way past the last one. */
static bool suits(const mha_operand *x, size_t batch, size_t rows, size_t columns)
{
    const size_t reach =
        x->offset + (batch - 1) * x->batch + (rows - 1) * x->row + columns; /* bind has checked */
    return x->row >= columns && reach <= INT_MAX / 2 && batch * rows * columns <= INT_MAX / 2;
}

static bool suits_clblast(const mha_gemm_shape *shape, const mha_gemm_launch_args *args)
{
    const bool ta = shape->transpose_a, tb = shape->transpose_b;
    const size_t most_batches = 65535; /* NVIDIA's limit of groups along the third axis */
    return args->batch <= most_batches && args->m <= INT_MAX / 2 &&
           suits(&args->a, args->batch, ta ? args->k : args->m, ta ? args->m : args->k) &&
           suits(&args->b, args->batch, tb ? args->n : args->k, tb ? args->k : args->n) &&
           suits(&args->c, args->batch, args->m, args->n);
}

static mha_status launch_fill_bias(mha_gemm_stage *gemm, mha_run *run,
                                   const mha_gemm_launch_args *args)
{
    const mha_arg list[] = {
        MHA_ARG_MEM(args->c.buffer),    MHA_ARG_SIZE(args->c.offset),
        MHA_ARG_SIZE(args->c.batch),    MHA_ARG_SIZE(args->c.row),
        MHA_ARG_MEM(args->bias.buffer), MHA_ARG_SIZE(args->bias.offset),
        MHA_ARG_INT(args->batch),       MHA_ARG_INT(args->m),
        MHA_ARG_INT(args->n),
    };
    const mha_grid grid = mha_grid_rows(args->n, args->batch * args->m, gemm->fill_bias.free_group);
    return mha_run_launch(run, "bias", &gemm->fill_bias, list, sizeof list / sizeof list[0], &grid);
}

/* One call of CLBlast: all batches, or the first. */
static mha_status launch_clblast(mha_gemm_stage *gemm, mha_run *run, const char *stage,
                                 const mha_gemm_launch_args *args, float beta, bool batched)
{
    const char *what = batched ? "CLBlastSgemmStridedBatched" : "CLBlastSgemm";
    cl_event event = NULL;
    cl_event *wanted = mha_run_wants_events(run) ? &event : NULL;
    cl_mem temp = gemm->clblast_bytes ? run->workspace : NULL; /* NULL: CLBlast needs none */
    const mha_status status = batched
                                  ? call_batched(&gemm->shape, args, beta, run->queue, wanted)
                                  : call_gemm(&gemm->shape, args, beta, run->queue, temp, wanted);
    if (status)
        return mha_log_fail(&run->context->log, status, "%s of %s failed", what, stage);
    mha_run_queued(run, stage, what, event);
    return MHA_OK;
}

static mha_status launch_activation(mha_gemm_stage *gemm, mha_run *run,
                                    const mha_gemm_launch_args *args)
{
    mha_status status = MHA_OK;
    for (size_t i = 0; !status && i < args->batch; i++) {
        const mha_view rows = { .buffer = args->c.buffer,
                                .offset = args->c.offset + i * args->c.batch,
                                .strides = { 0, 0, args->c.row, 1 } };
        const mha_activation_rows list = { .rows = args->m, .input = rows, .output = rows };
        status = mha_activation_launch(&gemm->activation, run, &gemm->activation_desc, &list);
    }
    return status;
}

static mha_status multiply_by_clblast(mha_gemm_stage *gemm, mha_run *run, const char *stage,
                                      const mha_gemm_launch_args *given)
{
    mha_gemm_launch_args args = *given;
    if (gemm->shape.bias) {
        const mha_status status = launch_fill_bias(gemm, run, &args);
        if (status)
            return status;
    }
    const float beta = gemm->shape.bias ? 1.0f : gemm->shape.beta;
    /* Above the sizes of its direct kernel, which are those that need temporary memory, CLBlast
     * 1.5.3 allocates for a batched product in every call, and where sizes fill its tiles it
     * forgets offset and batch stride of A, B or C. So a large product goes batch by batch. */
    if (args.batch > 1 && !gemm->clblast_bytes)
        return launch_clblast(gemm, run, stage, &args, beta, true);
    mha_status status = MHA_OK;
    for (size_t i = 0; !status && i < args.batch; i++) {
        status = launch_clblast(gemm, run, stage, &args, beta, false);
        args.a.offset += args.a.batch;
        args.b.offset += args.b.batch;
        args.c.offset += args.c.batch;
    }
    return status;
}

mha_status mha_gemm_launch(mha_gemm_stage *gemm, mha_run *run, const char *stage,
                           const mha_gemm_launch_args *given)
{
    const mha_gemm_shape *shape = &gemm->shape;
    mha_gemm_launch_args args = *given;
    fold_batches(shape, &args);
    if (gemm->way == MHA_GEMM_WAY_CPU)
        return mha_gemm_cpu_launch(&gemm->cpu, run, stage, shape, &args);
    if (gemm->way == MHA_GEMM_WAY_TILES)
        return launch_tile(gemm, run, stage, &args);
    mha_gemm_launch_args wide = mha_widen_args(&gemm->widen, run, shape, given);
    fold_batches(shape, &wide);
    if (!suits_clblast(shape, &wide))
        return launch_tile(gemm, run, stage, &args);

    const bool narrows = mha_product_is_half(shape->c_type);
    run->aside = true;
    mha_status status = mha_widen_inputs(&gemm->widen, run, shape, given);
    run->aside = narrows;
    if (!status)
        status = multiply_by_clblast(gemm, run, stage, &wide);
    if (!status && shape->activation)
        status = launch_activation(gemm, run, &wide);
    run->aside = false;
    if (!status && narrows)
        status = mha_widen_output(&gemm->widen, run, shape, given);
    return status;
}

bool mha_gemm_widens(const mha_gemm_stage *gemm)
{
    return gemm->way == MHA_GEMM_WAY_CLBLAST && mha_widen_is_needed(&gemm->shape);
}

const char *mha_gemm_way_name(mha_gemm_way way)
{
    static const char *const names[] = { [MHA_GEMM_WAY_CLBLAST] = "CLBlast",
                                         [MHA_GEMM_WAY_TILES] = "the library's tiles",
                                         [MHA_GEMM_WAY_CPU] = "the library's CPU kernel" };
    return names[way];
}
