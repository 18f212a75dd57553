/* A folder of a test's own for the files that it makes. */
#define _XOPEN_SOURCE 700
#include "scratch.h"

#include <criterion/criterion.h>
#include <ftw.h>
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

static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *place)
{
    (void)facts;
    (void)kind;
    (void)place;
    return remove(path);
}

void scratch_remove(void)
{
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void scratch_write(const char *name, const void *bytes, size_t size)
{
    FILE *const file = fopen(scratch_path(name), "wb");
    cr_assert(file);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
}
