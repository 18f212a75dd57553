/* Plain arrays for the host-array calls, each up to the end of a page, packed or with something
 * between its rows. */
#ifndef MHA_TESTS_HOST_MEMORY_H
#define MHA_TESTS_HOST_MEMORY_H

#include <mha.h>
#include <stdbool.h>

/* Floats as elements of a type. `data` NULL: not given. */
mha_host_input host_input(mha_type type, const size_t shape[4], bool gaps, const float *data);
/* Filled with bytes that are a NaN in each type. */
mha_host_output host_output(mha_type type, const size_t shape[4], bool gaps);
/* The elements, packed; fails the test, naming the case, where anything between them has changed.
 */
void host_read(const char *name, const mha_host_output *output, mha_type type,
               const size_t shape[4], void *data);

/* Bias or weight of a norm: `count` elements. */
const void *host_row(mha_type type, size_t count, const float *data);

#endif
