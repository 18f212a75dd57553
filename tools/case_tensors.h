/* The tensor lines of a case.txt. Between case.c and case_tensors.c only. */
#ifndef MHA_TOOLS_CASE_TENSORS_H
#define MHA_TOOLS_CASE_TENSORS_H

#include "case.h"

/* Notes the first thing found wrong; line 0: it is not in one line. Returns false. */
#ifdef __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
bool case_fail(case_file *file, unsigned line, const char *format, ...);

/* A letter or underscore, then letters, digits and underscores. */
bool case_is_name(const char *text);

/* Parses the lines input.N, output.N, output_tol.N and output_skip.N, which the entries hold, and
 * loads the files. The entries' values are cut up by it. */
bool case_read_tensors(case_file *file, const char *folder);
void case_free_tensors(case_file *file);

#endif
