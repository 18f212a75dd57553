/* Where a model's folder is that a user has not named. */
#ifndef MHA_TOOLS_MODEL_FOLDER_H
#define MHA_TOOLS_MODEL_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* `given`, or if that is NULL the folder that examples/sentence-embedding/fetch-model makes. False:
 * that one is not there, and `reason` says what to do. */
bool model_folder(const char *given, char *folder, size_t folder_size, char *reason,
                  size_t reason_size);

#endif
