/* A folder of a test's own for the files that it makes. */
#define _POSIX_C_SOURCE 200809L
#include "scratch.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/mha-test-XXXXXX";

void scratch_make(void)
{
    cr_assert(mkdtemp(folder), "no folder for the test's files");
}

const char *scratch_folder(void)
{
    return folder;
}

const char *scratch_path(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

void scratch_remove(void)
{
    DIR *const list = opendir(folder);
    if (!list)
        return;
    for (const struct dirent *entry = readdir(list); entry; entry = readdir(list))
        if (entry->d_name[0] != '.')
            unlink(scratch_path(entry->d_name));
    closedir(list);
    rmdir(folder);
}

void scratch_write(const char *name, const void *bytes, size_t size)
{
    FILE *const file = fopen(scratch_path(name), "wb");
    cr_assert(file);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
}
