/* Finds the case folders below a folder. */
#ifndef MHA_TOOLS_FOLDERS_H
#define MHA_TOOLS_FOLDERS_H

#include <stdbool.h>
#include <stddef.h>

/* A list of paths, the caller's to free. */
typedef struct folders {
    char **paths;
    size_t count;
} folders;

/* Appends every folder at or below `root` that holds a case.txt, in the order of the names. Follows
 * symbolic links, but not back into a folder that it is inside of. False: something cannot be read,
 * and `error` says what; the rest has been searched all the same. */
bool folders_find(folders *list, const char *root, char *error, size_t error_size);
void folders_free(folders *list);

#endif
