/* Compiled programs on disk: one file a program, named by the hash of all that decides it. */
#include "cache.h"

#include "log.h"
#include "os.h"

/* Inline: the library then needs xxHash's header alone. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file is the 16 bytes of its key, 8 of the binary's own hash, the binary. */
enum {
    HEAD_BYTES = 24,
    MOST_BYTES = 256 << 20
};

mha_status mha_cache_open(mha_cache *cache, const mha_log *log, const char *dir)
{
    if (dir && !dir[0])
        return MHA_OK;
    if (dir) {
        cache->folder = malloc(strlen(dir) + 1);
        if (!cache->folder)
            return mha_log_fail(log, MHA_OUT_OF_HOST_MEMORY, "no host memory for the cache's name");
        strcpy(cache->folder, dir);
    } else {
        cache->folder = mha_os_cache_folder();
    }
    if (cache->folder && !mha_os_make_folder(cache->folder)) {
        mha_log_say(log, MHA_LOG_WARNING,
                    "the folder %s cannot be created: kernels are compiled anew in each process",
                    cache->folder);
        mha_cache_close(cache);
    }
    return MHA_OK;
}

void mha_cache_close(mha_cache *cache)
{
    free(cache->folder);
    cache->folder = NULL;
}

static void add_text(XXH3_state_t *state, const char *text)
{
    XXH3_128bits_update(state, text, strlen(text) + 1); /* the 0 keeps "ab","c" from "a","bc" */
}

mha_cache_key mha_cache_key_of(const mha_device_info *device, const char *options, const char *text,
                               size_t length)
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    add_text(&state, "libmha binary 1");
    add_text(&state, device->platform_name);
    add_text(&state, device->vendor);
    add_text(&state, device->name);
    add_text(&state, device->device_version);
    add_text(&state, device->driver_version);
    add_text(&state, options);
    XXH3_128bits_update(&state, text, length);
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    mha_cache_key key;
    memcpy(key.bytes, canonical.digest, sizeof key.bytes);
    return key;
}

static char *path_of(const mha_cache *cache, const mha_cache_key *key)
{
    const size_t size = strlen(cache->folder) + 2 * sizeof key->bytes + sizeof "/.bin";
    char *path = malloc(size);
    if (!path)
        return NULL;
    int used = snprintf(path, size, "%s/", cache->folder);
    for (size_t i = 0; i < sizeof key->bytes; i++)
        used += snprintf(path + used, size - (size_t)used, "%02x", key->bytes[i]);
    snprintf(path + used, size - (size_t)used, ".bin");
    return path;
}

static void make_head(unsigned char head[HEAD_BYTES], const mha_cache_key *key,
                      const unsigned char *binary, size_t size)
{
    XXH64_canonical_t sum;
    XXH64_canonicalFromHash(&sum, XXH3_64bits(binary, size));
    memcpy(head, key->bytes, sizeof key->bytes);
    memcpy(head + sizeof key->bytes, sum.digest, sizeof sum.digest);
}

unsigned char *mha_cache_load(const mha_cache *cache, const mha_cache_key *key, size_t *size)
{
    if (!cache->folder)
        return NULL;
    char *path = path_of(cache, key);
    size_t whole = 0;
    unsigned char *file = path ? mha_os_read_file(path, MOST_BYTES, &whole) : NULL;
    free(path);
    if (!file)
        return NULL;
    unsigned char head[HEAD_BYTES];
    if (whole > HEAD_BYTES) {
        make_head(head, key, file + HEAD_BYTES, whole - HEAD_BYTES);
        if (!memcmp(head, file, HEAD_BYTES)) {
            *size = whole - HEAD_BYTES;
            memmove(file, file + HEAD_BYTES, *size);
            return file;
        }
    }
    free(file);
    return NULL;
}

bool mha_cache_store(const mha_cache *cache, const mha_cache_key *key, const unsigned char *binary,
                     size_t size)
{
    if (!cache->folder || size > MOST_BYTES - HEAD_BYTES)
        return false;
    char *path = path_of(cache, key);
    unsigned char *file = malloc(HEAD_BYTES + size);
    bool stored = false;
    if (path && file) {
        make_head(file, key, binary, size);
        memcpy(file + HEAD_BYTES, binary, size);
        stored = mha_os_write_file(path, file, HEAD_BYTES + size);
    }
    free(file);
    free(path);
    return stored;
}
