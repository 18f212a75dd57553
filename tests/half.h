/* float16 and bfloat16 on the host, by arithmetic rather than by bits. */
#ifndef MHA_TESTS_HALF_H
#define MHA_TESTS_HALF_H

#include <mha.h>
#include <stdint.h>

/* The value of a type that is nearest to x, ties to even: an infinity where x is beyond the
 * largest, x itself for MHA_FLOAT32. */
float half_round(float x, mha_type type);

/* The bits of a value that half_round has given, for MHA_FLOAT16 or MHA_BFLOAT16, and back. */
uint16_t half_bits(float x, mha_type type);
float half_value(uint16_t bits, mha_type type);

/* The largest relative error of half_round, above the subnormal ones. */
double half_epsilon(mha_type type);

#endif
