/* Softmax by itself as an attention case whose scores are given: who sees whom, bias, mask and
 * lengths are those of the case. */
#ifndef MHA_TESTS_SOFTMAX_CASE_H
#define MHA_TESTS_SOFTMAX_CASE_H

#include "attention_case.h"

/* Sets of MHA_USES_* to go through: each rule alone and some together. */
enum {
    SOFTMAX_RULES = 13
};
extern const uint64_t softmax_rules[SOFTMAX_RULES];

/* A seeded case with these rules; it uses probs, and the lse if the seed says so. */
attention_case softmax_case_pick(uint64_t seed, uint64_t uses);

/* Scores for the caller to free: the case's fill, NaN or inf where they are not seen. Asks the
 * reference. */
float *softmax_case_scores(attention_data *data);

/* Compares data->probs and data->lse. */
bool softmax_case_compare(const attention_data *data, const float *scores, compare_worst *worst);

#endif
