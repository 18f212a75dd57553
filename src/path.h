/* What a path through attention is: each answers whether it can, what it needs, and does it. */
#ifndef MHA_PATH_H
#define MHA_PATH_H

#include "bound.h"
#include "text.h"

/* Workspace: bytes from its very start that CLBlast may use for one product at a time, and a region
 * anywhere behind them, aligned. */
typedef struct mha_needs {
    size_t temp_bytes;
    size_t region_bytes;
} mha_needs;

typedef struct mha_path_room {
    mha_path id;
    const char *name;
    /* False, with a sentence's end in why_not, where the path cannot do what the desc says. */
    bool (*can)(const mha_context *context, const mha_attention_desc *desc, mha_text *why_not);
    /* Likewise, where it can but another is better. Of one that was asked for it is not asked. */
    bool (*suits)(const mha_context *context, const mha_attention_desc *desc, mha_text *why_not);
    /* Bytes that it stores in a workspace at the desc's lengths, known before it is made; what
     * CLBlast asks for comes on top. */
    size_t (*stores)(const mha_context *context, const mha_attention_desc *desc);
    mha_status (*create)(void **out, mha_context *context, const mha_attention_desc *desc);
    void (*destroy)(void *path); /* accepts a half-built one */
    mha_needs (*needs)(const void *path);
    void (*explain)(const void *path, mha_text *text);
    /* Whether the output may be exactly the query's memory. */
    bool (*may_overwrite)(const void *path);
    mha_status (*enqueue)(void *path, mha_run *run, const mha_bound *bound, size_t region);
} mha_path_room;

enum {
    /* Query rows of a key head up to which decode suits. By measurement on PoCL: above them the
     * streaming path's lanes, which are queries, are full. The kernels for GPUs take as many
     * together. */
    MHA_PATH_FEW_ROWS = 8
};
extern const mha_path_room mha_path_decode;
extern const mha_path_room mha_path_streaming;
extern const mha_path_room mha_path_composed;

#endif
