/* An encoder or decoder layer on host arrays. */
#ifndef MHA_TESTS_BLOCK_HOST_H
#define MHA_TESTS_BLOCK_HOST_H

#include "block_case.h"

/* Weights of a case in host arrays; `gaps`: between the rows of matrices. */
mha_decoder_host_weights block_host_decoder(const block_data *data, bool gaps);
mha_encoder_host_weights block_host_encoder(const block_data *data, bool gaps);

/* Input, memory and output of a case. */
mha_decoder_host_args block_host_args(const block_data *data);

/* Makes the block, loads it from host arrays, and runs it on such; the output as its type stores
 * it. */
void block_host_run(device *d, const char *name, const block_data *data, void *output);

#endif
