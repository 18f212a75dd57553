/* One stage of the library by itself: a run that its internal functions take, and views that they
 * trust, made from tensors between guards. */
#ifndef MHA_TESTS_STAGE_RUN_H
#define MHA_TESTS_STAGE_RUN_H

#include "bound.h"
#include "device_memory.h"
#include "run.h"

/* `call` must outlive the run. */
mha_run stage_begin(device *d, const mha_call *call);
/* Ends the run; the stage's status must be good. */
void stage_end(device *d, mha_run *run, mha_status status, const char *name);

/* With strides spelled out, 0 along axes of length 1. */
mha_view stage_view(const device_tensor *tensor);

/* int32 lengths on the device, for as long as the device forgets nothing. */
mha_bound_lengths stage_lengths(device *d, const int32_t *lengths, size_t count);

#endif
