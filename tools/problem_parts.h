/* How a problem comes to its tensors and their data. Between problem.c, problem_sizes.c and
 * problem_data.c only. */
#ifndef MHA_TOOLS_PROBLEM_PARTS_H
#define MHA_TOOLS_PROBLEM_PARTS_H

#include "problem.h"

/* SIZE_MAX where it overflows. */
size_t problem_multiply(size_t a, size_t b);

/* Resolves the desc and says which tensors there are. Offsets get their data too, since they decide
 * shapes. */
mha_status problem_size(problem_ready *self, const mha_layer_desc *given, bool is_cross,
                        uint64_t seed);

/* Fills the host data of an input that has none yet, and makes what the buffer starts with:
 * *stored, which may be the same, else is for the caller to free. */
mha_status problem_fill(problem_ready *self, problem_slot slot, uint64_t seed, void **stored);

#endif
