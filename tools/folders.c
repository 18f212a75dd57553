/* Finds the case folders below a folder. */
#define _POSIX_C_SOURCE 200809L
#include "folders.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The folders that the search is inside of, from the innermost outwards. */
typedef struct place {
    const struct place *outer;
    dev_t device;
    ino_t inode;
} place;

typedef struct search {
    folders *list;
    char *error;
    size_t error_size;
    bool ok;
} search;

static void note(search *self, const char *path, const char *why)
{
    if (self->ok)
        snprintf(self->error, self->error_size, "%s: %s", path, why);
    self->ok = false;
}

/* NULL: no memory, which has been noted. */
static char *join(search *self, const char *folder, const char *name)
{
    const size_t length = strlen(folder), bytes = length + strlen(name) + 2;
    char *const path = malloc(bytes);
    if (path)
        snprintf(path, bytes, "%s%s%s", folder, length && folder[length - 1] == '/' ? "" : "/",
                 name);
    else
        note(self, folder, "the host is out of memory");
    return path;
}

static bool append(char ***items, size_t *count, const char *text)
{
    char **const more = realloc(*items, (*count + 1) * sizeof **items);
    char *const copy = more ? strdup(text) : NULL;
    if (more)
        *items = more;
    if (copy)
        more[(*count)++] = copy;
    return copy != NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The sorted names in a folder, without hidden ones, "." and "..". */
static char **list_names(search *self, const char *path, size_t *count)
{
    char **names = NULL;
    *count = 0;
    DIR *const folder = opendir(path);
    if (!folder) {
        note(self, path, strerror(errno));
        return NULL;
    }
    for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
        if (entry->d_name[0] != '.' && !append(&names, count, entry->d_name))
            note(self, path, "the host is out of memory");
    closedir(folder);
    if (*count)
        qsort(names, *count, sizeof *names, by_name);
    return names;
}

static bool is_inside(const struct stat *folder, const place *at)
{
    for (; at; at = at->outer)
        if (at->device == folder->st_dev && at->inode == folder->st_ino)
            return true;
    return false;
}

static void visit(search *self, const char *path, const place *outer)
{
    struct stat folder;
    if (stat(path, &folder)) {
        /* A link to nowhere below the root is no case, and no trouble. */
        if (!outer)
            note(self, path, strerror(errno));
        return;
    }
    if (!S_ISDIR(folder.st_mode)) {
        if (!outer)
            note(self, path, "not a folder");
        return;
    }
    if (is_inside(&folder, outer))
        return;
    const place here = { .outer = outer, .device = folder.st_dev, .inode = folder.st_ino };
    size_t count;
    char **const names = list_names(self, path, &count);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(names[i], "case.txt") && !append(&self->list->paths, &self->list->count, path))
            note(self, path, "the host is out of memory");
    for (size_t i = 0; i < count; i++) {
        char *const below = join(self, path, names[i]);
        if (below)
            visit(self, below, &here);
        free(below);
        free(names[i]);
    }
    free(names);
}

bool folders_find(folders *list, const char *root, char *error, size_t error_size)
{
    search self = { .list = list, .error = error, .error_size = error_size, .ok = true };
    visit(&self, root, NULL);
    return self.ok;
}

void folders_free(folders *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->paths[i]);
    free(list->paths);
    *list = (folders){ 0 };
}
