/* The operating system: locks, folders and whole files. The only room that is POSIX and no more. */
#define _POSIX_C_SOURCE 200809L
#include "os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool mha_os_mutex_init(mha_mutex *mutex)
{
    return !pthread_mutex_init(mutex, NULL);
}

void mha_os_mutex_release(mha_mutex *mutex)
{
    pthread_mutex_destroy(mutex);
}

void mha_os_lock(mha_mutex *mutex)
{
    pthread_mutex_lock(mutex);
}

void mha_os_unlock(mha_mutex *mutex)
{
    pthread_mutex_unlock(mutex);
}

static char *join(const char *folder, const char *rest)
{
    const size_t size = strlen(folder) + strlen(rest) + 1;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s%s", folder, rest);
    return path;
}

char *mha_os_cache_folder(void)
{
    /* The XDG base directory specification: a relative path counts as none. */
    const char *cache = getenv("XDG_CACHE_HOME");
    if (cache && cache[0] == '/')
        return join(cache, "/libmha");
    const char *home = getenv("HOME");
    if (home && home[0] == '/')
        return join(home, "/.cache/libmha");
    return NULL;
}

static bool make_one(const char *path)
{
    if (!mkdir(path, 0700))
        return true;
    struct stat there;
    return errno == EEXIST && !stat(path, &there) && S_ISDIR(there.st_mode);
}

bool mha_os_make_folder(const char *path)
{
    char *part = join(path, "");
    if (!part)
        return false;
    bool made = true;
    for (char *slash = strchr(part + 1, '/'); made && slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        made = make_one(part);
        *slash = '/';
    }
    made = made && make_one(part);
    free(part);
    return made;
}

void *mha_os_read_file(const char *path, size_t most, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *data = NULL;
    long end = -1;
    if (!fseek(file, 0, SEEK_END) && (end = ftell(file)) > 0 && (size_t)end <= most) {
        rewind(file);
        data = malloc((size_t)end);
        if (data && fread(data, 1, (size_t)end, file) != (size_t)end) {
            free(data);
            data = NULL;
        }
    }
    fclose(file);
    if (data)
        *size = (size_t)end;
    return data;
}

bool mha_os_write_file(const char *path, const void *data, size_t size)
{
    char *temporary = join(path, ".XXXXXX");
    if (!temporary)
        return false;
    const int number = mkstemp(temporary);
    FILE *file = number >= 0 ? fdopen(number, "wb") : NULL;
    bool written = file && fwrite(data, 1, size, file) == size;
    if (file)
        written = !fclose(file) && written;
    else if (number >= 0)
        close(number);
    written = written && !rename(temporary, path);
    if (!written && number >= 0)
        unlink(temporary);
    free(temporary);
    return written;
}
