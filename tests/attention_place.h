/* An attention case on the device: in any layout, between guards. */
#ifndef MHA_TESTS_ATTENTION_PLACE_H
#define MHA_TESTS_ATTENTION_PLACE_H

#include "attention_case.h"
#include "device_memory.h"

/* Tensors of the inputs and outputs on the device, and the arguments that name them. */
typedef struct attention_tensors {
    device_tensor output, probs, scores, lse;
    mha_attention_args args;
} attention_tensors;
attention_tensors attention_place(device *d, const attention_data *data);
/* One tensor in a layout (LAYOUT_QKV: as LAYOUT_GAPS); `data` NULL: an output. */
device_tensor attention_place_one(device *d, attention_layout layout, const size_t shape[4],
                                  size_t bytes, const void *data);
/* Of them bias, mask, probs, lse and lengths alone. */
void attention_place_options(device *d, const attention_data *data, attention_tensors *to);

/* Makes the attention, enqueues, reads the results, looks at the guards. */
void attention_run_placed(device *d, attention_data *data, const attention_tensors *tensors);
/* Reads the results and looks at the guards, once all is enqueued. */
void attention_collect(device *d, attention_data *data, const attention_tensors *tensors);
/* Places, runs, and releases all. */
void attention_run(device *d, attention_data *data);

/* All of it: new, spoil, expect, run, compare, free. */
bool attention_check(device *d, const attention_case *given, compare_worst *worst);

#endif
