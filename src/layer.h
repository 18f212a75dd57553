/* The layer as the host-array calls see it. */
#ifndef MHA_LAYER_H
#define MHA_LAYER_H

#include "context.h"

/* The resolved description. */
const mha_layer_desc *mha_layer_shape(const mha_layer *layer);
mha_context *mha_layer_context(const mha_layer *layer);

#endif
