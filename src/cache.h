/* Compiled programs on disk. A memo: it may be emptied at any time, by anybody, without changing a
 * result; a file that is not whole or not for exactly this device and text is not used. */
#ifndef MHA_CACHE_H
#define MHA_CACHE_H

#include "mha.h"

#include <stdbool.h>

typedef struct mha_cache {
    char *folder; /* NULL: no files */
} mha_cache;

typedef struct mha_cache_key {
    unsigned char bytes[16];
} mha_cache_key;

/* `dir` as in mha_context_options. A folder that cannot be made is a warning. */
mha_status mha_cache_open(mha_cache *cache, const mha_log *log, const char *dir);
void mha_cache_close(mha_cache *cache);

/* The key of all that decides a binary: library, device and driver, options, text. */
mha_cache_key mha_cache_key_of(const mha_device_info *device, const char *options, const char *text,
                               size_t length);

/* The binary for the caller to free, or NULL. */
unsigned char *mha_cache_load(const mha_cache *cache, const mha_cache_key *key, size_t *size);
bool mha_cache_store(const mha_cache *cache, const mha_cache_key *key, const unsigned char *binary,
                     size_t size);

#endif
