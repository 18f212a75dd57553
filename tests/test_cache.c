/* Compiled programs on disk: used the second time, never trusted, never needed. Belongs to the
 * suite of test_lifecycle.c. */
#define _GNU_SOURCE
#include "layer.h"
#include "world.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_SIZE = 512,
    MOST_FILES = 16,
    MOST_BYTES = 4 << 20
};

/* A folder for one test, and a context that keeps its programs in a part of it. */
typedef struct scene {
    world w; /* whose log and data are used */
    char root[PATH_SIZE];
    char folder[PATH_SIZE + 8];
    mha_context *context;
    mha_attention *attention;
    float want[WORLD_OUTPUTS], want_lse[WORLD_ROWS];
    long compiled, loaded; /* programs, by the last create */
} scene;

static void open_scene(scene *s)
{
    layer_start();
    memset(s, 0, sizeof *s);
    const char *parent = getenv("TMPDIR");
    snprintf(s->root, sizeof s->root, "%s/mha-cache-XXXXXX", parent ? parent : "/tmp");
    cr_assert(mkdtemp(s->root), "%s cannot be made", s->root);
    snprintf(s->folder, sizeof s->folder, "%s/cache", s->root);
    world_open(&s->w, MHA_GEMM_KERNEL);
    cr_assert(layer_active(), "this OpenCL loader knows no layers");
    cr_assert_eq(world_attend(&s->w, s->want, s->want_lse), MHA_OK);
}

static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *place)
{
    (void)facts;
    (void)kind;
    (void)place;
    return remove(path);
}

static void close_scene(scene *s)
{
    world_close(&s->w);
    nftw(s->root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    cr_expect_eq(layer_live(NULL), 0, "%ld objects at the end", layer_live(NULL));
}

/* A context and an attention of it, which is right however its programs came to be. */
static mha_status create(scene *s, const char *dir)
{
    const mha_context_options options = { .cache_dir = dir, .log = device_log(&s->w.d) };
    device_hush(&s->w.d);
    layer_reset();
    mha_status status = mha_context_create(&s->context, &options);
    if (!status)
        status = mha_attention_create(&s->attention, s->context, &s->w.desc);
    s->compiled = layer_count("clCreateProgramWithSource");
    s->loaded = layer_count("clCreateProgramWithBinary");
    return status;
}

static void create_and_run(scene *s, const char *dir, const char *name)
{
    float got[WORLD_OUTPUTS], lse[WORLD_ROWS];
    cr_assert_eq(create(s, dir), MHA_OK, "%s: %s", name, s->w.d.sentence);
    cr_assert_eq(world_attend_host(&s->w, s->attention, got, lse), MHA_OK, "%s", name);
    cr_expect(!memcmp(got, s->want, sizeof got) && !memcmp(lse, s->want_lse, sizeof lse), "%s",
              name);
    mha_attention_destroy(&s->attention);
    mha_context_destroy(&s->context);
}

/* The paths of all files in a folder; 0 where there is no folder. */
static size_t list_files(const char *folder, char paths[MOST_FILES][2 * PATH_SIZE])
{
    size_t count = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        cr_assert(count < MOST_FILES);
        snprintf(paths[count++], 2 * PATH_SIZE, "%s/%s", folder, entry->d_name);
    }
    if (dir)
        closedir(dir);
    return count;
}

static size_t read_file(const char *path, char *data)
{
    FILE *file = fopen(path, "rb");
    cr_assert(file, "%s", path);
    const size_t size = fread(data, 1, MOST_BYTES, file);
    fclose(file);
    return size;
}

static void write_file(const char *path, const char *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(data, 1, size, file) == size && !fclose(file), "%s", path);
}

Test(lifecycle, cache_is_used_the_second_time)
{
    static scene s;
    static char paths[MOST_FILES][2 * PATH_SIZE];
    open_scene(&s);
    create_and_run(&s, s.folder, "first");
    const long programs = s.compiled;
    cr_expect_gt(programs, 0);
    cr_expect_eq(s.loaded, 0);
    cr_expect_eq(list_files(s.folder, paths), (size_t)programs);
    create_and_run(&s, s.folder, "second");
    cr_expect_eq(s.compiled, 0, "%ld programs are compiled again", s.compiled);
    cr_expect_eq(s.loaded, programs);
    cr_expect_eq(list_files(s.folder, paths), (size_t)programs);
    /* Within one context nothing is built twice. */
    cr_assert_eq(create(&s, s.folder), MHA_OK);
    mha_attention *again = NULL;
    cr_assert_eq(mha_attention_create(&again, s.context, &s.w.desc), MHA_OK);
    cr_expect_eq(layer_count("clCreateProgramWithBinary"), programs);
    cr_expect_eq(layer_count("clCreateProgramWithSource"), 0);
    mha_attention_destroy(&again);
    mha_attention_destroy(&s.attention);
    mha_context_destroy(&s.context);
    close_scene(&s);
}

/* A file as it was, of `size` bytes, made wrong in one way. Returns how many bytes it then has. */
typedef size_t spoil_fn(char *data, size_t size);

static size_t empty(char *data, size_t size)
{
    (void)data;
    (void)size;
    return 0;
}

static size_t cut_in_the_head(char *data, size_t size)
{
    (void)data;
    (void)size;
    return 10;
}

static size_t cut_to_the_head(char *data, size_t size)
{
    (void)data;
    (void)size;
    return 24;
}

static size_t cut_by_half(char *data, size_t size)
{
    (void)data;
    return size / 2;
}

static size_t cut_by_one(char *data, size_t size)
{
    (void)data;
    return size - 1;
}

static size_t one_byte_more(char *data, size_t size)
{
    data[size] = 0;
    return size + 1;
}

static size_t another_key(char *data, size_t size)
{
    data[3] ^= 1;
    return size;
}

static size_t another_sum(char *data, size_t size)
{
    data[20] ^= 1;
    return size;
}

static size_t another_bit(char *data, size_t size)
{
    data[size / 2] ^= 0x10;
    return size;
}

static size_t zeros(char *data, size_t size)
{
    memset(data, 0, size);
    return size;
}

static const struct {
    const char *name;
    spoil_fn *spoil;
} spoilers[] = {
    { "empty", empty },
    { "cut in the head", cut_in_the_head },
    { "cut to the head", cut_to_the_head },
    { "cut by half", cut_by_half },
    { "cut by one", cut_by_one },
    { "one byte more", one_byte_more },
    { "another key", another_key },
    { "another sum", another_sum },
    { "another bit", another_bit },
    { "zeros", zeros },
};

/* Wrong files are not used, not even looked into by the driver; they are made anew. */
Test(lifecycle, cache_files_are_not_trusted)
{
    static scene s;
    static char paths[MOST_FILES][2 * PATH_SIZE];
    static char data[MOST_BYTES + 1];
    open_scene(&s);
    create_and_run(&s, s.folder, "first");
    const long programs = s.compiled;
    for (size_t way = 0; way < sizeof spoilers / sizeof spoilers[0]; way++) {
        const char *name = spoilers[way].name;
        const size_t count = list_files(s.folder, paths);
        cr_expect_eq(count, (size_t)programs, "%s: %zu files", name, count);
        for (size_t i = 0; i < count; i++) {
            const size_t size = read_file(paths[i], data);
            write_file(paths[i], data, spoilers[way].spoil(data, size));
        }
        create_and_run(&s, s.folder, name);
        cr_expect_eq(s.w.d.sentences, 0, "%s: %s", name, s.w.d.sentence);
        cr_expect_eq(s.compiled, programs, "%s: %ld are compiled", name, s.compiled);
        cr_expect_eq(s.loaded, 0, "%s: %ld are loaded", name, s.loaded);
        create_and_run(&s, s.folder, name);
        cr_expect_eq(s.compiled, 0, "%s: the files are not made anew", name);
    }
    /* A whole file under the name of another. */
    list_files(s.folder, paths);
    write_file(paths[0], data, read_file(paths[1], data));
    create_and_run(&s, s.folder, "swapped");
    cr_expect_eq(s.compiled, 1, "swapped: %ld are compiled", s.compiled);
    close_scene(&s);
}

/* Binaries that the driver does not take, at the load or at the build. */
Test(lifecycle, cache_binaries_may_be_refused)
{
    static const char *const functions[] = { "clCreateProgramWithBinary", "clBuildProgram" };
    static scene s;
    open_scene(&s);
    create_and_run(&s, s.folder, "first");
    for (size_t i = 0; i < 2; i++) {
        const mha_context_options options = { .cache_dir = s.folder, .log = device_log(&s.w.d) };
        cr_assert_eq(mha_context_create(&s.context, &options), MHA_OK);
        layer_reset();
        device_hush(&s.w.d);
        layer_fail(functions[i], 1, CL_INVALID_BINARY);
        cr_expect_eq(mha_attention_create(&s.attention, s.context, &s.w.desc), MHA_OK, "%s: %s",
                     functions[i], s.w.d.sentence);
        cr_expect_eq(layer_pending(), 0, "%s", functions[i]);
        cr_expect_eq(layer_count("clCreateProgramWithSource"), 1, "%s", functions[i]);
        cr_expect_eq(s.w.d.sentences, 0, "%s: %s", functions[i], s.w.d.sentence);
        mha_attention_destroy(&s.attention);
        mha_context_destroy(&s.context);
    }
    close_scene(&s);
}

/* A kernel that does not compile: MHA_BUILD_FAILED, which says which one. */
Test(lifecycle, a_failed_build_is_named)
{
    static scene s;
    open_scene(&s);
    layer_fail("clBuildProgram", 1, CL_BUILD_PROGRAM_FAILURE);
    const mha_context_options options = { .cache_dir = "", .log = device_log(&s.w.d) };
    cr_assert_eq(mha_context_create(&s.context, &options), MHA_OK);
    device_hush(&s.w.d);
    cr_expect_eq(mha_attention_create(&s.attention, s.context, &s.w.desc), MHA_BUILD_FAILED);
    cr_expect(!s.attention);
    cr_expect(strstr(s.w.d.sentence, "cl/") && strstr(s.w.d.sentence, "did not build"), "%s",
              s.w.d.sentence);
    cr_expect_eq(mha_attention_create(&s.attention, s.context, &s.w.desc), MHA_OK);
    mha_attention_destroy(&s.attention);
    mha_context_destroy(&s.context);
    close_scene(&s);
}

/* Nothing is written with "", and to the user's folder with NULL. */
Test(lifecycle, cache_folder_is_chosen)
{
    static scene s;
    static char paths[MOST_FILES][2 * PATH_SIZE];
    char users[2 * PATH_SIZE];
    open_scene(&s);
    setenv("XDG_CACHE_HOME", s.root, 1);
    setenv("HOME", s.root, 1);
    create_and_run(&s, "", "none");
    const long programs = s.compiled;
    cr_expect_gt(programs, 0);
    snprintf(users, sizeof users, "%s/libmha", s.root); /* the driver may have one of its own */
    cr_expect(access(users, F_OK), "%s is made", users);
    create_and_run(&s, NULL, "XDG_CACHE_HOME");
    snprintf(users, sizeof users, "%s/libmha", s.root);
    cr_expect_eq(list_files(users, paths), (size_t)programs);
    /* The specification: a relative path is none. */
    setenv("XDG_CACHE_HOME", "relative", 1);
    create_and_run(&s, NULL, "HOME");
    snprintf(users, sizeof users, "%s/.cache/libmha", s.root);
    cr_expect_eq(list_files(users, paths), (size_t)programs);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    create_and_run(&s, NULL, "no folder at all");
    cr_expect_eq(s.compiled, programs);
    cr_expect_eq(s.w.d.sentences, 0, "%s", s.w.d.sentence);
    /* Parents are made on need, for the user alone. */
    snprintf(users, sizeof users, "%s/a/b/c/", s.root);
    create_and_run(&s, users, "parents");
    cr_expect_eq(list_files(users, paths), (size_t)programs);
    struct stat facts;
    cr_expect(!stat(users, &facts) && (facts.st_mode & 0777) == 0700, "%o", facts.st_mode & 0777);
    close_scene(&s);
}

/* A file where the folder should be, before and after the context is made: a warning, no error. */
Test(lifecycle, cache_folder_cannot_be_written)
{
    static scene s;
    open_scene(&s);
    write_file(s.folder, "x", 1);
    create_and_run(&s, s.folder, "a file in its place");
    cr_expect_eq(s.w.d.sentences, 1, "%zu", s.w.d.sentences);
    cr_expect(strstr(s.w.d.sentence, s.folder), "%s", s.w.d.sentence);
    const long programs = s.compiled;
    char below[2 * PATH_SIZE];
    snprintf(below, sizeof below, "%s/below", s.folder);
    create_and_run(&s, below, "a file in its parent's place");
    cr_expect(s.w.d.sentences == 1 && strstr(s.w.d.sentence, below), "%s", s.w.d.sentence);

    cr_assert(!remove(s.folder));
    const mha_context_options options = { .cache_dir = s.folder, .log = device_log(&s.w.d) };
    device_hush(&s.w.d);
    cr_assert_eq(mha_context_create(&s.context, &options), MHA_OK);
    cr_assert(!rmdir(s.folder));
    cr_expect_eq(mha_attention_create(&s.attention, s.context, &s.w.desc), MHA_OK);
    cr_expect_eq(s.w.d.sentences, (size_t)programs, "a warning for each program: %zu",
                 s.w.d.sentences);
    cr_expect(strstr(s.w.d.sentence, s.folder), "%s", s.w.d.sentence);
    mha_attention_destroy(&s.attention);
    mha_context_destroy(&s.context);
    close_scene(&s);
}
