/* The operations of conformance cases, each in terms of the public interface. */
#ifndef MHA_TOOLS_OPS_H
#define MHA_TOOLS_OPS_H

#include "check.h"

/* What came of a case, and what a report says of it. */
typedef struct ops_result {
    check_verdict verdict;
    char text[1088];    /* why it failed or was skipped */
    double worst;       /* the worst error as a part of its tolerance, 0 if nothing was compared */
    char explain[2048]; /* the library's choice of kernels */
} ops_result;

/* Runs a case that has been read. */
ops_result ops_run(check_setup *setup, case_file *file);

/* One operation each: binds the case's tensors and calls the library (see check.h). */
typedef void ops_function(check *self);

/* Attention without projections: ops_attention.c. */
ops_function ops_sdpa;
ops_function ops_sdpa_backward;
ops_function ops_torch_sdpa;
ops_function ops_onnx_attention;
ops_function ops_multi_head_attention;
ops_function ops_sdpa_decode;
ops_function ops_decoder_attention;

/* Layers: ops_layer.c. */
ops_function ops_seed_layer;
ops_function ops_plain_layer;
ops_function ops_torch_layer;
ops_function ops_packed_layer;

/* Blocks: ops_block.c. */
ops_function ops_torch_encoder;
ops_function ops_torch_decoder;

/* The steps: ops_parts.c. */
ops_function ops_gemm;
ops_function ops_split_heads;
ops_function ops_merge_heads;
ops_function ops_softmax;

/* ops_rotary.c. */
ops_function ops_rotary_embedding;

/* ops_norm.c. */
ops_function ops_layer_normalization;
ops_function ops_rms_normalization;
ops_function ops_skip_layer_normalization;

/* ops_activation.c. */
ops_function ops_gelu;
ops_function ops_gelu_forward;
ops_function ops_swish;
ops_function ops_swiglu;

/* ops_model.c, or ops_no_model.c. */
ops_function ops_sentence_embedding;

#endif
