/* What is inside a model word's problem. Between problem_model.c and expect_model.c only. */
#ifndef MHA_TOOLS_PROBLEM_MODEL_PARTS_H
#define MHA_TOOLS_PROBLEM_MODEL_PARTS_H

#include "model.h"
#include "problem_model.h"

struct problem_model {
    char folder[4096];
    config shape;
    model *network;
    token_batch batch;
    int32_t *ids; /* [batch][length]; batch points to it, and to the problem's lengths */
};

#endif
