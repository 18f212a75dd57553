/* How a problem comes to its object, its tensors and their data. Between the files of problem only.
 */
#ifndef MHA_TOOLS_PROBLEM_PARTS_H
#define MHA_TOOLS_PROBLEM_PARTS_H

#include "problem.h"

/* SIZE_MAX where it overflows. */
size_t problem_multiply(size_t a, size_t b);

/* Resolves the descs and says which tensors there are. Offsets get their data too, since they
 * decide shapes. */
mha_status problem_size(problem_ready *self, const mha_layer_desc *given, bool is_cross,
                        uint64_t seed);

/* Fills the host data of an input that has none yet, and makes what the buffer starts with:
 * *stored, which may be the same, else is for the caller to free. */
mha_status problem_fill(problem_ready *self, problem_slot slot, uint64_t seed, void **stored);

/* The object, and what it needs of a workspace. The library sees the desc as the word has it, and
 * says what is wrong with it. What was made is for problem_destroy, also after a failure. */
mha_status problem_create(problem_ready *self, const mha_layer_desc *given);
void problem_destroy(problem_ready *self);

/* Gives a layer of any kind its weights, and waits for it. */
mha_status problem_load(problem_ready *self);

#endif
