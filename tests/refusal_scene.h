/* What the refused calls of attention, layer and softmax share: sizes, data, and all options. */
#ifndef MHA_TESTS_REFUSAL_SCENE_H
#define MHA_TESTS_REFUSAL_SCENE_H

#include "reference.h"
#include "refusal.h"

#include <stddef.h>
#include <stdint.h>

enum {
    SCENE_BATCH = 2,
    SCENE_HEADS = 4,
    SCENE_KV_HEADS = 2,
    SCENE_QUERIES = 5,
    SCENE_KEYS = 7,
    SCENE_DIM = 8,
    SCENE_VALUE_DIM = 6,
    SCENE_MOST = 512 /* elements of any argument */
};

/* Every bit of uses but a window to the right. */
extern const mha_attention_desc scene_desc;

/* Inputs, filled by scene_fill, and the right values, filled by a reference. */
extern float scene_query[SCENE_MOST], scene_key[SCENE_MOST], scene_value[SCENE_MOST];
extern float scene_bias[SCENE_MOST];
extern unsigned char scene_mask[SCENE_MOST];
extern const int32_t scene_key_lengths[SCENE_BATCH];
extern const int32_t scene_per_query[SCENE_BATCH * SCENE_QUERIES];
extern double scene_output[SCENE_MOST], scene_probs[SCENE_MOST], scene_lse[SCENE_MOST];
/* All of these. */
extern const reference_args scene_reference;

void scene_fill(void);

/* mha_attention_enqueue, for refusal.enqueue. */
mha_status scene_attend(void *object, const void *args, const mha_call *call);

/* Where a member of the arguments is, for refusal_arg.at. */
#define SCENE_AT(member) offsetof(mha_attention_args, member)
#define SCENE_SHAPE(...) ((const size_t[4]){ __VA_ARGS__ })

/* bias, mask, lengths, probs and lse on the device, put into the list from list[0] on and into
 * *args. Returns how many. `base`: where *args is in the struct that the list is of. */
size_t scene_add_options(device *d, refusal_arg *list, mha_attention_args *args, size_t base);

/* Lengths that are out of range, given twice or not at all, of a call with all options. `base`: as
 * above. */
void scene_refuse_lengths(refusal *r, size_t base);

/* Offsets, totals and dropout's seed, given to a call whose desc says nothing of them; `cache_too`:
 * also new keys, positions and tables. */
void scene_refuse_unasked(refusal *r, size_t base, bool cache_too);

#endif
