/* The streaming path: one kernel that goes over the keys once, in the tiling that suits the device.
 */
#include "attend_cpu.h"
#include "attend_gpu.h"
#include "log.h"
#include "path.h"

#include <stdlib.h>

typedef struct streaming {
    mha_attention_desc desc;
    bool is_cpu;
    mha_attend_cpu_stage cpu;
    mha_attend_gpu_stage gpu;
} streaming;

/* The tiling that a desc gets: as asked, else by the kind of device. A CPU whose local memory is
 * too small for its own tiling can run the other. */
static bool uses_cpu_tiling(const mha_context *context, const mha_attention_desc *desc)
{
    if (desc->tiling != MHA_TILING_DEFAULT)
        return desc->tiling == MHA_TILING_CPU;
    mha_text unheard = { 0 };
    return context->device.type & CL_DEVICE_TYPE_CPU && mha_attend_cpu_can(context, desc, &unheard);
}

static bool can(const mha_context *context, const mha_attention_desc *desc, mha_text *why_not)
{
    if (desc->uses & (MHA_USES_PROBS | MHA_USES_SCORES)) {
        mha_text_add(why_not, "it never stores the scores, so it cannot return %s",
                     desc->uses & MHA_USES_PROBS ? "probs" : "scores");
        return false;
    }
    /* Without offsets the composed path writes the zeros, with no key to hand to a kernel. */
    if (!desc->key_len && !(desc->uses & (MHA_USES_QUERY_OFFSETS | MHA_USES_KEY_OFFSETS))) {
        mha_text_add(why_not, "there are no keys to go over");
        return false;
    }
    if (uses_cpu_tiling(context, desc))
        return mha_attend_cpu_can(context, desc, why_not);
    return mha_attend_gpu_can(context, why_not);
}

static size_t stores(const mha_context *context, const mha_attention_desc *desc)
{
    (void)context;
    (void)desc;
    return 0;
}

static void destroy(void *given)
{
    streaming *path = given;
    if (!path)
        return;
    mha_attend_cpu_release(&path->cpu);
    mha_attend_gpu_release(&path->gpu);
    free(path);
}

static mha_status create(void **out, mha_context *context, const mha_attention_desc *desc)
{
    streaming *path = calloc(1, sizeof *path);
    *out = path;
    if (!path)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY, "no host memory for a path");
    path->desc = *desc;
    path->is_cpu = uses_cpu_tiling(context, desc);
    return path->is_cpu ? mha_attend_cpu_setup(&path->cpu, context, desc)
                        : mha_attend_gpu_setup(&path->gpu, context, desc);
}

static mha_needs needs(const void *path)
{
    (void)path;
    return (mha_needs){ 0 };
}

static void explain(const void *given, mha_text *text)
{
    const streaming *path = given;
    const bool asked = path->desc.tiling != MHA_TILING_DEFAULT;
    if (path->is_cpu)
        mha_text_add(text, "attend: kernel attend_cpu_rows, a work-item for %zu queries: %s\n",
                     path->cpu.queries, asked ? "as asked" : "the device is a CPU");
    else
        mha_text_add(text, "attend: kernel attend_gpu_tile, a work-group for 64 queries: %s\n",
                     asked ? "as asked" : "the device is no CPU, or one with little local memory");
}

static bool may_overwrite(const void *given)
{
    const streaming *path = given;
    return path->is_cpu || mha_attend_gpu_may_overwrite(&path->gpu, &path->desc);
}

static mha_status enqueue(void *given, mha_run *run, const mha_bound *bound, size_t region)
{
    streaming *path = given;
    (void)region;
    if (!path->desc.batch || !bound->query_len)
        return MHA_OK;
    /* An output in the workspace, a layer's on its way to W_o, has no root. */
    mha_run_will_write(run, bound->output.root ? "output" : NULL);
    mha_run_will_write(run, bound->lse.buffer ? "lse" : NULL);
    return path->is_cpu ? mha_attend_cpu_launch(&path->cpu, run, &path->desc, bound)
                        : mha_attend_gpu_launch(&path->gpu, run, &path->desc, bound);
}

const mha_path_room mha_path_streaming = {
    .id = MHA_PATH_STREAMING,
    .name = "streaming",
    .can = can,
    .stores = stores,
    .create = create,
    .destroy = destroy,
    .needs = needs,
    .explain = explain,
    .may_overwrite = may_overwrite,
    .enqueue = enqueue,
};
