/* A folder of a test's own for the files that it makes. */
#ifndef MHA_TESTS_SCRATCH_H
#define MHA_TESTS_SCRATCH_H

#include <stddef.h>

/* For a suite's .init and .fini; the second removes the folder and all that is in it. */
void scratch_make(void);
void scratch_remove(void);

const char *scratch_folder(void);

/* The path of a file in it, until the next call. */
const char *scratch_path(const char *name);

/* Fails the test where the file cannot be written. */
void scratch_write(const char *name, const void *bytes, size_t size);

#endif
