/* The host of cl/rules.h: its build options and arguments, the same in every kernel that includes
 * it. */
#ifndef MHA_RULES_H
#define MHA_RULES_H

#include "bound.h"

/* "-DUSES_BIAS=1 ...", ending in no space; returns the length. */
int mha_rules_options(char *text, size_t size, const mha_attention_desc *desc);

enum {
    MHA_RULES_ARGS = 15 /* at the most */
};
/* Appends the arguments to a launch's list; returns how many. */
size_t mha_rules_args(mha_arg args[MHA_RULES_ARGS], const mha_attention_desc *desc,
                      const mha_bound *bound);

#endif
