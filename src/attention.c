/* Attention: the rules of its description, the choice of a path, the checks of a call. */
#include "attention.h"

#include "append.h"
#include "log.h"
#include "shape.h"

#include <stdlib.h>

/* A path that was chosen, and made. */
typedef struct chosen {
    const mha_path_room *room;
    void *path;
} chosen;

struct mha_attention {
    mha_context *context;
    mha_attention_desc desc; /* resolved */
    chosen main;
    /* Where a cache takes a prompt and then single tokens: the path of the calls with few queries.
     * room NULL: none. */
    chosen few;
    size_t few_len;          /* the most queries that it takes */
    mha_append_stage append; /* with MHA_USES_APPEND */
    /* Behind the lengths, within the region of mha_attention_needs. */
    size_t append_region, path_region;
    mha_needs needs;
};

/* The paths, best first; the last one runs wherever anything does. */
static const mha_path_room *const rooms[] = { &mha_path_decode, &mha_path_streaming,
                                              &mha_path_composed };
enum {
    NUM_ROOMS = sizeof rooms / sizeof rooms[0]
};

/* Whether a room is taken; if not, why_not says why. */
static bool fits(const mha_path_room *room, const mha_context *context,
                 const mha_attention_desc *desc, mha_text *why_not)
{
    if (desc->path != MHA_PATH_DEFAULT && desc->path != room->id) {
        mha_text_add(why_not, "another path was asked for");
        return false;
    }
    if (!room->can(context, desc, why_not))
        return false;
    return desc->path == room->id || !room->suits || room->suits(context, desc, why_not);
}

static mha_status choose(mha_attention *attention, const char *who)
{
    char why[512] = "";
    for (size_t i = 0; i < NUM_ROOMS; i++) {
        mha_text text = { .at = why, .capacity = sizeof why };
        if (fits(rooms[i], attention->context, &attention->desc, &text)) {
            attention->main.room = rooms[i];
            return MHA_OK;
        }
        if (attention->desc.path == rooms[i]->id)
            break;
    }
    const bool asked = attention->desc.path != MHA_PATH_DEFAULT;
    /* Of these the last path does none, else it lacks memory only. */
    const bool never =
        attention->desc.uses & (MHA_USES_QUERY_OFFSETS | MHA_USES_KEY_OFFSETS | MHA_USES_RING);
    return mha_log_fail(&attention->context->log, asked || never ? MHA_UNSUPPORTED : MHA_TOO_LARGE,
                        asked ? "%s: the path asked for cannot do this: %s"
                              : "%s: no path can do this; the last one cannot because %s",
                        who, why);
}

/* The desc of the calls with few queries, if such calls are worth a path of their own: those of a
 * cache, whose object takes a prompt first and is made for that. False: they are not. */
static bool describe_few(const mha_attention *attention, mha_attention_desc *few)
{
    const mha_attention_desc *desc = &attention->desc;
    *few = *desc;
    if (!(desc->uses & MHA_USES_APPEND) || desc->path != MHA_PATH_DEFAULT ||
        attention->main.room == &mha_path_decode)
        return false;
    for (few->query_len = MHA_PATH_FEW_ROWS; few->query_len; few->query_len--) {
        mha_text unheard = { 0 };
        if (few->query_len < desc->query_len &&
            fits(&mha_path_decode, attention->context, few, &unheard))
            return true;
    }
    return false;
}

static mha_status create_paths(mha_attention *attention)
{
    mha_context *context = attention->context;
    mha_status status =
        attention->main.room->create(&attention->main.path, context, &attention->desc);
    mha_attention_desc few;
    if (status || !describe_few(attention, &few))
        return status;
    attention->few.room = &mha_path_decode;
    attention->few_len = few.query_len;
    return attention->few.room->create(&attention->few.path, context, &few);
}

/* What either path needs. */
static mha_needs needs_of_paths(const mha_attention *attention)
{
    mha_needs needs = attention->main.room->needs(attention->main.path);
    if (!attention->few.room)
        return needs;
    const mha_needs few = attention->few.room->needs(attention->few.path);
    if (needs.temp_bytes < few.temp_bytes)
        needs.temp_bytes = few.temp_bytes;
    if (needs.region_bytes < few.region_bytes)
        needs.region_bytes = few.region_bytes;
    return needs;
}

static const chosen *path_of_call(const mha_attention *attention, size_t query_len)
{
    return attention->few.room && query_len <= attention->few_len ? &attention->few
                                                                  : &attention->main;
}

mha_status mha_attention_make(mha_attention **out, mha_context *context,
                              const mha_attention_desc *desc, const char *who)
{
    *out = NULL;
    mha_attention *attention = calloc(1, sizeof *attention);
    if (!attention)
        return mha_log_fail(&context->log, MHA_OUT_OF_HOST_MEMORY,
                            "no host memory for an attention");
    attention->context = context;
    mha_status status = mha_shape_resolve(context, desc, who, &attention->desc);
    if (!status)
        status = choose(attention, who);
    if (!status)
        status = create_paths(attention);
    if (!status && attention->desc.uses & MHA_USES_APPEND)
        status = mha_append_setup(&attention->append, context, &attention->desc);
    if (status) {
        mha_attention_destroy(&attention);
        return mha_context_note(context, status);
    }
    const mha_needs path = needs_of_paths(attention);
    attention->needs.temp_bytes = path.temp_bytes;
    mha_layout_add(&attention->needs.region_bytes, mha_bound_upload_bytes(&attention->desc));
    attention->append_region =
        mha_layout_add(&attention->needs.region_bytes, attention->append.region_bytes);
    attention->path_region = mha_layout_add(&attention->needs.region_bytes, path.region_bytes);
    status = mha_shape_check_workspace(context, mha_attention_workspace(attention).bytes, who);
    if (status) {
        mha_attention_destroy(&attention);
        return status;
    }
    *out = attention;
    return MHA_OK;
}

mha_status mha_attention_create(mha_attention **out, mha_context *context,
                                const mha_attention_desc *desc)
{
    static const char who[] = "mha_attention_create";
    if (out)
        *out = NULL;
    const mha_status status = mha_context_begin_create(context, who, desc, out);
    return status ? status : mha_attention_make(out, context, desc, who);
}

void mha_attention_destroy(mha_attention **attention)
{
    mha_attention *a = attention ? *attention : NULL;
    if (!a)
        return;
    *attention = NULL;
    if (a->main.room)
        a->main.room->destroy(a->main.path);
    if (a->few.room)
        a->few.room->destroy(a->few.path);
    mha_append_release(&a->append);
    free(a);
}

mha_workspace mha_attention_workspace(const mha_attention *attention)
{
    if (!attention)
        return (mha_workspace){ 0 };
    size_t end = 0;
    mha_layout_add(&end, attention->needs.temp_bytes);
    mha_layout_add(&end, attention->needs.region_bytes);
    return (mha_workspace){ .bytes = end, .alignment = attention->context->alignment };
}

size_t mha_attention_explain(const mha_attention *attention, char *text, size_t capacity)
{
    mha_text out = { .at = text, .capacity = text ? capacity : 0 };
    if (out.capacity)
        text[0] = '\0';
    if (!attention)
        return 0;
    mha_text_add(&out, "path %s: %s\n", attention->main.room->name,
                 attention->desc.path == MHA_PATH_DEFAULT ? "the best that can" : "as asked");
    if (attention->desc.uses & MHA_USES_APPEND)
        mha_text_add(&out, "append: kernel append_rows, new keys and values into the cache%s\n",
                     attention->desc.uses & MHA_USES_ROTARY
                         ? ", rotated; rotated queries into the workspace"
                         : "");
    attention->main.room->explain(attention->main.path, &out);
    if (attention->few.room) {
        mha_text_add(&out, "path %s for calls of at most %zu %s\n", attention->few.room->name,
                     attention->few_len, attention->few_len == 1 ? "query" : "queries");
        attention->few.room->explain(attention->few.path, &out);
    }
    for (size_t i = 0; i < NUM_ROOMS; i++) {
        if (rooms[i] == attention->main.room || rooms[i] == attention->few.room)
            continue;
        char why[512] = "";
        mha_text reason = { .at = why, .capacity = sizeof why };
        if (fits(rooms[i], attention->context, &attention->desc, &reason))
            mha_text_add(&reason, "a better one can; it would need %.1f MiB of workspace",
                         (double)rooms[i]->stores(attention->context, &attention->desc) / 1048576);
        mha_text_add(&out, "not path %s: %s\n", rooms[i]->name, why);
    }
    return out.length;
}

const mha_attention_desc *mha_attention_shape(const mha_attention *attention)
{
    return &attention->desc;
}

mha_context *mha_attention_context(const mha_attention *attention)
{
    return attention->context;
}

mha_needs mha_attention_needs(const mha_attention *attention)
{
    return attention->needs;
}

mha_status mha_attention_forward(mha_attention *attention, mha_run *run, mha_bound *bound,
                                 size_t region)
{
    const mha_attention_desc *desc = &attention->desc;
    mha_status status = mha_bound_upload(run, bound, desc, region);
    if (!status && desc->uses & MHA_USES_APPEND)
        status = mha_append_launch(&attention->append, run, desc, bound,
                                   region + attention->append_region);
    const chosen *path = path_of_call(attention, bound->query_len);
    if (!status)
        status = path->room->enqueue(path->path, run, bound, region + attention->path_region);
    return status;
}

/* query, key, value and output, in the shapes of the header. */
static mha_status bind_tensors(const mha_run *run, mha_bound *bound, const char *who,
                               const mha_attention_desc *desc, const mha_attention_args *args)
{
    const bool packs = desc->uses & MHA_USES_QUERY_OFFSETS;
    const size_t b = packs ? 1 : desc->batch, h = desc->heads;
    const size_t len = packs ? bound->query_total : bound->query_len;
    mha_status status = mha_bind_tensor(run, &bound->query, who, "query", &args->query,
                                        (size_t[]){ b, h, len, desc->head_dim },
                                        mha_bind_type_bytes(desc->type), MHA_READS);
    if (!status)
        status = mha_bound_take_keys(run, bound, who, desc, args);
    if (!status)
        status = mha_bind_tensor(run, &bound->output, who, "output", &args->output,
                                 (size_t[]){ b, h, len, desc->value_dim },
                                 mha_bind_type_bytes(desc->output_type), MHA_WRITES);
    return status;
}

static bool may_overwrite(const mha_attention *attention, size_t query_len)
{
    const chosen *path = path_of_call(attention, query_len);
    const mha_attention_desc *desc = &attention->desc;
    return desc->type == desc->output_type && desc->head_dim == desc->value_dim &&
           path->room->may_overwrite(path->path);
}

mha_status mha_attention_enqueue_as(mha_attention *attention, const mha_attention_args *args,
                                    const mha_call *call, const char *who)
{
    mha_run_clear_event(call);
    if (!attention)
        return MHA_INVALID_ARGUMENT;
    mha_context *context = attention->context;
    if (!args)
        return mha_log_fail(&context->log, MHA_INVALID_ARGUMENT, "%s: args is NULL", who);
    const mha_attention_desc *desc = &attention->desc;
    mha_run run;
    mha_bound bound = { 0 };
    mha_status status =
        mha_run_begin(&run, context, call, who, mha_attention_workspace(attention).bytes);
    if (status)
        return mha_context_note(context, status);
    status = mha_bound_take_lengths(&run, &bound, who, desc, args);
    if (!status)
        status = mha_bound_take_offsets(&run, &bound, who, desc, args);
    if (!status)
        status = bind_tensors(&run, &bound, who, desc, args);
    if (!status)
        status = mha_bound_take_options(&run, &bound, who, desc, args);
    if (!status)
        status = mha_bound_take_new(&run, &bound, who, desc, args);
    if (!status)
        status = mha_bound_check_overlap(&run, &bound, who, "query",
                                         may_overwrite(attention, bound.query_len));
    if (!status)
        status = mha_run_wait(&run);
    if (!status) {
        size_t region = 0;
        mha_layout_add(&region, attention->needs.temp_bytes);
        status = mha_attention_forward(attention, &run, &bound, region);
    }
    return mha_run_end(&run, status);
}

mha_status mha_attention_enqueue(mha_attention *attention, const mha_attention_args *args,
                                 const mha_call *call)
{
    return mha_attention_enqueue_as(attention, args, call, "mha_attention_enqueue");
}
