/* The operating system: locks, folders and whole files. The only room that is POSIX and no more. */
#ifndef MHA_OS_H
#define MHA_OS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

typedef pthread_mutex_t mha_mutex;
#define MHA_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER

bool mha_os_mutex_init(mha_mutex *mutex);
void mha_os_mutex_release(mha_mutex *mutex);
void mha_os_lock(mha_mutex *mutex);
void mha_os_unlock(mha_mutex *mutex);

/* The path of "libmha" in the user's cache folder, for the caller to free; NULL where the user has
 * none. Creates nothing. */
char *mha_os_cache_folder(void);
/* Creates the folder and its parents, for the user alone. False if it cannot be. */
bool mha_os_make_folder(const char *path);

/* A whole file into memory for the caller to free; NULL if there is none, it cannot be read, or it
 * has more than `most` bytes. */
void *mha_os_read_file(const char *path, size_t most, size_t *size);
/* Writes a file that appears whole or not at all, also when several processes write it. */
bool mha_os_write_file(const char *path, const void *data, size_t size);

#endif
