/* Floats as the elements of any type: how tests hand them to a device and read them back. */
#ifndef MHA_TESTS_STORED_H
#define MHA_TESTS_STORED_H

#include <mha.h>
#include <stddef.h>

/* MHA_TYPE_DEFAULT is float32 here. */
size_t stored_bytes(mha_type type);
/* Each element becomes the nearest that the type holds. */
void stored_round(mha_type type, float *data, size_t count);
/* As they are stored, rounded, for the caller to free; and back. */
void *stored_pack(mha_type type, const float *data, size_t count);
void stored_unpack(mha_type type, float *to, const void *from, size_t count);
/* The largest error that rounding x to the type makes, a bit more than half a step; 0 for float32.
 */
double stored_limit(mha_type type, double x);

#endif
