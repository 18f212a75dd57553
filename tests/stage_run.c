/* Runs and views for tests of single stages. */
#include "stage_run.h"

#include <criterion/criterion.h>

mha_run stage_begin(device *d, const mha_call *call)
{
    mha_run run;
    const mha_status status = mha_run_begin(&run, d->context, call, "a test of a stage", 0);
    cr_assert_eq(status, MHA_OK, "%s", d->sentence);
    return run;
}

void stage_end(device *d, mha_run *run, mha_status status, const char *name)
{
    cr_assert_eq(mha_run_end(run, status), MHA_OK, "%s: %s", name, d->sentence);
}

mha_view stage_view(const device_tensor *tensor)
{
    const size_t *given = tensor->strides;
    const bool packed = !given[0] && !given[1] && !given[2] && !given[3];
    mha_view view = { .buffer = device_buffer(tensor), .offset = tensor->offset };
    size_t step = 1;
    for (int axis = 3; axis >= 0; axis--) {
        const size_t stride = packed ? step : given[axis];
        view.strides[axis] = tensor->shape[axis] > 1 ? stride : 0;
        step *= tensor->shape[axis];
    }
    return view;
}

mha_bound_lengths stage_lengths(device *d, const int32_t *lengths, size_t count)
{
    const device_tensor tensor =
        device_input(d, (size_t[]){ 1, 1, 1, count }, NULL, sizeof *lengths, lengths);
    return (mha_bound_lengths){ .buffer = device_buffer(&tensor),
                                .offset = tensor.offset,
                                .count = count };
}
