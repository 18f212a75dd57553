/* The readers of .npy files and of case folders: what they take, and that damage of any kind gets a
 * sentence and no crash. */
#define _POSIX_C_SOURCE 200809L
#include "case.h"
#include "npy.h"
#include "scratch.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(case, .init = scratch_make, .fini = scratch_remove);

/* A .npy file of a version, with that header text and so many items, which are the numbers 0, 1, 2
 * .. as float32. */
static void write_npy_version(const char *name, int version, const char *header, size_t items)
{
    unsigned char bytes[2048] = "\x93NUMPY";
    const size_t length = strlen(header);
    size_t size = 6;
    bytes[size++] = (unsigned char)version;
    bytes[size++] = 0;
    for (int i = 0; i < (version > 1 ? 4 : 2); i++)
        bytes[size++] = (unsigned char)(length >> 8 * i);
    memcpy(bytes + size, header, length);
    size += length;
    for (size_t i = 0; i < items; i++, size += 4) {
        const float value = (float)i;
        memcpy(bytes + size, &value, 4);
    }
    scratch_write(name, bytes, size);
}

static void write_npy(const char *name, const char *header, size_t items)
{
    write_npy_version(name, 1, header, items);
}

#define HEADER(type, order, shape) \
    "{'descr': '" type "', 'fortran_order': " order ", 'shape': " shape ", }\n"

/* The file is refused with a sentence that holds `words`, and nothing is left in the array. */
static void refuse_npy(const char *words)
{
    npy_array array;
    char error[200] = "";
    memset(&array, 0xff, sizeof array);
    cr_expect(!npy_read(scratch_path("a.npy"), &array, error, sizeof error), "taken: %s", words);
    cr_expect(strstr(error, words), "\"%s\" is not about \"%s\"", error, words);
    cr_expect_null(array.data);
    cr_expect_eq(array.count, 0);
}

Test(case, npy_is_read)
{
    static const char *const headers[] = {
        HEADER("<f4", "False", "(2, 3)"),
        HEADER("<f4", "False", "(2,3,)"),
        "{'shape': (2, 3), 'descr': \"<f4\", 'fortran_order': False}",
        " { 'fortran_order' : False , 'descr' : '<f4' , 'shape' : ( 2 , 3 ) }   \n",
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        for (int version = 1; version <= 3; version++) {
            npy_array array;
            char error[200] = "";
            write_npy_version("a.npy", version, headers[i], 6);
            cr_assert(npy_read(scratch_path("a.npy"), &array, error, sizeof error), "%s: %s",
                      headers[i], error);
            cr_expect_eq(array.type, NPY_FLOAT32);
            cr_expect_eq(array.rank, 2);
            cr_expect_eq(array.shape[0], 2);
            cr_expect_eq(array.shape[1], 3);
            cr_expect_eq(array.count, 6);
            cr_expect_eq(((const float *)array.data)[5], 5);
            npy_free(&array);
            cr_expect_null(array.data);
        }
    }
}

Test(case, npy_of_a_scalar_and_of_nothing)
{
    npy_array array;
    char error[200] = "";
    write_npy("a.npy", HEADER("<f4", "False", "()"), 1);
    cr_assert(npy_read(scratch_path("a.npy"), &array, error, sizeof error), "%s", error);
    cr_expect_eq(array.rank, 0);
    cr_expect_eq(array.count, 1);
    npy_free(&array);
    write_npy("a.npy", HEADER("<f4", "False", "(3, 0)"), 0);
    cr_assert(npy_read(scratch_path("a.npy"), &array, error, sizeof error), "%s", error);
    cr_expect_eq(array.count, 0);
    cr_expect_not_null(array.data);
    npy_free(&array);
}

Test(case, npy_of_every_type)
{
    static const struct {
        const char *header;
        npy_type type;
        size_t items; /* of 4 bytes, which make the 4 elements */
    } files[] = {
        { HEADER("<f2", "False", "(4,)"), NPY_FLOAT16, 2 },
        { HEADER("<f4", "False", "(4,)"), NPY_FLOAT32, 4 },
        { HEADER("<f8", "False", "(4,)"), NPY_FLOAT64, 8 },
        { HEADER("<u2", "False", "(4,)"), NPY_UINT16, 2 },
        { HEADER("<i4", "False", "(4,)"), NPY_INT32, 4 },
        { HEADER("<i8", "False", "(4,)"), NPY_INT64, 8 },
        { HEADER("|u1", "False", "(4,)"), NPY_UINT8, 1 },
        { HEADER("|b1", "False", "(4,)"), NPY_BOOL, 1 },
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        npy_array array;
        char error[200] = "";
        write_npy("a.npy", files[i].header, files[i].items);
        cr_assert(npy_read(scratch_path("a.npy"), &array, error, sizeof error), "%s%s",
                  files[i].header, error);
        cr_expect_eq(array.type, files[i].type);
        cr_expect_eq(array.count, 4);
        npy_free(&array);
    }
}

Test(case, npy_with_a_bad_header)
{
    static const struct {
        const char *header, *words;
    } files[] = {
        { HEADER("<f4", "True", "(2, 3)"), "Fortran order" },
        { HEADER("<f4", "Maybe", "(2, 3)"), "fortran_order" },
        { HEADER(">f4", "False", "(2, 3)"), "type" },
        { HEADER("<c8", "False", "(2, 3)"), "type" },
        { HEADER("|O", "False", "(2, 3)"), "type" },
        { HEADER("<f4<f4<f4<f4", "False", "(2, 3)"), "type" },
        { HEADER("<f4", "False", "(2, -3)"), "shape" },
        { HEADER("<f4", "False", "(2 3)"), "shape" },
        { HEADER("<f4", "False", "(6)"), "shape" },
        { HEADER("<f4", "False", "6"), "shape" },
        { HEADER("<f4", "False", "(2, 3"), "shape" },
        { HEADER("<f4", "False", "(1,1,1,1,1,1,1,1,1)"), "more than 8 axes" },
        { HEADER("<f4", "False", "(4294967296, 4294967296, 4)"), "too large" },
        { HEADER("<f4", "False", "(0, 4294967296, 4294967296)"), "too large" },
        { HEADER("<f4", "False", "(99999999999999999999999,)"), "too large" },
        { HEADER("<f4", "False", "(4611686018427387904,)"), "too large" },
        { HEADER("<f4", "False", "(1099511627776,)"), "ends before its last item" },
        { "{'descr': '<f4', 'fortran_order': False, }", "lacks" },
        { "{'descr': '<f4', 'descr': '<f4'}", "repeated" },
        { "{'descr': '<f4', 'colour': 'red'}", "unknown" },
        { "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,)}", "descr" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)} x", "after the dict" },
        { "{'descr': '<f4' 'fortran_order': False}", "dict" },
        { "{'descr", "dict" },
        { "{", "dict" },
        { "", "dict" },
        { "[1, 2]", "dict" },
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        write_npy("a.npy", files[i].header, 6);
        refuse_npy(files[i].words);
    }
}

Test(case, npy_of_a_wrong_length)
{
    write_npy("a.npy", HEADER("<f4", "False", "(2, 3)"), 5);
    refuse_npy("ends before its last item");
    write_npy("a.npy", HEADER("<f4", "False", "(2, 3)"), 7);
    refuse_npy("goes on after its last item");
    write_npy("a.npy", HEADER("<f4", "False", "(0,)"), 1);
    refuse_npy("goes on after its last item");
    write_npy("a.npy", HEADER("|b1", "False", "(8,)"), 2);
    refuse_npy("bool");
}

/* The bytes of a file that is taken. */
static size_t make_good_npy(unsigned char *bytes, size_t capacity)
{
    write_npy("good.npy", HEADER("<f4", "False", "(2, 3)"), 6);
    FILE *const file = fopen(scratch_path("good.npy"), "rb");
    cr_assert(file);
    const size_t size = fread(bytes, 1, capacity, file);
    fclose(file);
    return size;
}

/* A good file cut off at every byte. */
Test(case, npy_cut_off_anywhere)
{
    unsigned char bytes[512];
    const size_t size = make_good_npy(bytes, sizeof bytes);
    for (size_t length = 0; length < size; length++) {
        scratch_write("a.npy", bytes, length);
        refuse_npy("");
    }
}

/* A good file with every byte of its frame and header changed in turn: refused, or read as
 * something that is as long as the file. */
Test(case, npy_with_any_byte_changed)
{
    static const unsigned char changes[] = { 0x00, 0xff, '9', '(', '\'', ' ' };
    unsigned char bytes[512];
    const size_t size = make_good_npy(bytes, sizeof bytes);
    for (size_t at = 0; at < size - 6 * 4; at++) {
        for (size_t i = 0; i < sizeof changes; i++) {
            const unsigned char kept = bytes[at];
            bytes[at] = changes[i];
            scratch_write("a.npy", bytes, size);
            bytes[at] = kept;
            npy_array array;
            char error[200];
            if (npy_read(scratch_path("a.npy"), &array, error, sizeof error))
                cr_expect_eq(array.count * array.item_bytes, 24);
            npy_free(&array);
        }
    }
}

Test(case, npy_that_is_none)
{
    scratch_write("a.npy", "hello, this is a text", 21);
    refuse_npy("not a .npy file");
    write_npy_version("a.npy", 4, HEADER("<f4", "False", "(2, 3)"), 6);
    refuse_npy("version");
    unlink(scratch_path("a.npy"));
    refuse_npy("No such file");
}

#define START "format = attncase/1\nname = some_case\nop = sdpa_fwd\n"
#define TENSORS                             \
    "inputs = 2\n"                          \
    "input.0 = q float32 2x3 q.npy\n"       \
    "input.1 = lens int32 2 lens.npy\n"     \
    "outputs = 1\n"                         \
    "output.0 = o float32 2x3 want_o.npy\n" \
    "output_tol.0 = 2e-05 1e-06\n"

static void write_case(const char *text)
{
    write_npy("q.npy", HEADER("<f4", "False", "(2, 3)"), 6);
    write_npy("flat.npy", HEADER("<f4", "False", "(20,)"), 20);
    write_npy("want_o.npy", HEADER("<f4", "False", "(2, 3)"), 6);
    write_npy("lens.npy", HEADER("<i4", "False", "(2,)"), 2);
    scratch_write("case.txt", text, strlen(text));
}

/* The case is refused with a sentence that names case.txt, then `line` if it is not 0, and holds
 * `words`. */
static void refuse_case(const char *text, unsigned line, const char *words)
{
    case_file file;
    char place[600];
    write_case(text);
    cr_expect(!case_read(scratch_folder(), &file), "taken: %s", text);
    snprintf(place, sizeof place, line ? "%s/case.txt:%u: " : "%s/case.txt: ", scratch_folder(),
             line);
    cr_expect(!strncmp(file.error, place, strlen(place)), "\"%s\" does not begin \"%s\"",
              file.error, place);
    cr_expect(strstr(file.error, words), "\"%s\" is not about \"%s\"", file.error, words);
    case_free(&file);
}

Test(case, case_is_read)
{
    case_file file;
    write_case(START "why = it = all\nscale = 0.5\nheads = 3\ncausal = none\n" TENSORS
                     "output_skip.0 = rows_ge lens\n");
    cr_assert(case_read(scratch_folder(), &file), "%s", file.error);
    cr_expect_str_eq(file.name, "some_case");
    cr_expect_str_eq(file.op, "sdpa_fwd");
    cr_expect_str_eq(case_string(&file, "why", ""), "it = all");
    cr_expect_eq(case_float(&file, "scale", 1), 0.5);
    cr_expect_eq(case_int(&file, "heads", 1), 3);
    cr_expect_eq(case_int(&file, "kv_heads", 7), 7);
    cr_expect_eq(case_flag(&file, "training", true), true);
    cr_expect_str_eq(case_unused_key(&file), "causal");
    const case_tensor *const q = case_input(&file, "q");
    cr_assert_not_null(q);
    cr_expect_null(case_input(&file, "k"));
    cr_expect_eq(q->count, 6);
    cr_expect(!q->strided);
    cr_expect_eq(q->strides[0], 3);
    cr_expect_eq(q->strides[1], 1);
    cr_expect_eq(case_type_value(q->type, q->data, 4), 4);
    cr_expect_str_eq(case_unused_input(&file), "lens");
    const case_tensor *const o = case_output(&file, "o");
    cr_assert_not_null(o);
    cr_expect_eq(o->rtol, 2e-05);
    cr_expect_eq(o->atol, 1e-06);
    cr_expect_eq(o->skip_input, &file.inputs[1]);
    cr_expect_str_eq(file.error, "");
    case_free(&file);
}

Test(case, case_with_strides)
{
    case_file file;
    write_case(START "inputs = 1\n"
                     "input.0 = q float32 2x3 flat.npy strides=8,2 offset=5 storage=20\n"
                     "outputs = 0\n");
    cr_assert(case_read(scratch_folder(), &file), "%s", file.error);
    const case_tensor *const q = case_input(&file, "q");
    cr_assert_not_null(q);
    cr_expect(q->strided);
    cr_expect_eq(q->count, 6);
    cr_expect_eq(q->storage, 20);
    cr_expect_eq(q->offset, 5);
    cr_expect_eq(q->strides[0], 8);
    cr_expect_eq(q->strides[1], 2);
    case_free(&file);
}

Test(case, case_with_a_bad_line)
{
    char text[2000] = START "why = ";
    refuse_case(START "scale 0.5\n" TENSORS, 4, "key = value");
    refuse_case(START "scale=0.5\n" TENSORS, 4, "key = value");
    refuse_case(START "\n" TENSORS, 4, "key = value");
    refuse_case(START "# a comment\n" TENSORS, 4, "key = value");
    refuse_case(START "scale = \n" TENSORS, 4, "no value");
    refuse_case(START "sca le = 1\n" TENSORS, 4, "not a key");
    refuse_case(START "2scale = 1\n" TENSORS, 4, "not a key");
    refuse_case(START "scale.0 = 1\n" TENSORS, 4, "not a key");
    refuse_case(START "input.00 = 1\n" TENSORS, 4, "not a key");
    refuse_case(START "input.x = 1\n" TENSORS, 4, "not a key");
    refuse_case(START "name = twice\n" TENSORS, 4, "duplicate key \"name\", first in line 2");
    refuse_case(START "why = a\ttab\n" TENSORS, 4, "0x09");
    refuse_case(START "why = \xc3\xa4\n" TENSORS, 4, "0xc3");
    refuse_case(START "scale = 1\r\n" TENSORS, 4, "0x0d");
    refuse_case(START TENSORS "why = no end", 0, "no end");
    memset(text + strlen(text), 'x', 995);
    strcat(text, "\n" TENSORS);
    refuse_case(text, 4, "1000 characters");
}

Test(case, case_with_a_bad_frame)
{
    refuse_case("", 0, "no end");
    refuse_case("name = a\nop = b\n" TENSORS, 0, "another format");
    refuse_case("format = attncase/2\nname = a\nop = b\n" TENSORS, 0, "another format");
    refuse_case("format = attncase/1\nop = b\n" TENSORS, 0, "\"name\" is missing");
    refuse_case("format = attncase/1\nname = a\n" TENSORS, 0, "\"op\" is missing");
    refuse_case(START, 0, "\"inputs\" is missing");
    refuse_case(START "inputs = -1\noutputs = 0\n", 0, "\"inputs\"");
    refuse_case(START "inputs = 1000000\noutputs = 0\n", 0, "\"inputs\"");
    refuse_case(START "inputs = one\noutputs = 0\n", 4, "not a whole number");
    char text[4096] = START TENSORS;
    for (int i = 0; i < 128; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "k%d = 1\n", i);
    refuse_case(text, 0, "128 lines");
    case_file file;
    unlink(scratch_path("case.txt"));
    cr_expect(!case_read(scratch_folder(), &file));
    cr_expect(strstr(file.error, "No such file"), "%s", file.error);
    case_free(&file);
    cr_expect(!case_read("/nowhere/at/all", &file));
    case_free(&file);
}

/* START, then "input.0 = " and the line, in a case without outputs. */
static void refuse_input(const char *line, const char *words)
{
    char text[512];
    snprintf(text, sizeof text, START "inputs = 1\ninput.0 = %s\noutputs = 0\n", line);
    refuse_case(text, 5, words);
}

Test(case, case_with_a_bad_tensor)
{
    refuse_input("q float32 2x3", "NAME DTYPE SHAPE FILE");
    refuse_input("q  float32 2x3 q.npy", "NAME DTYPE SHAPE FILE");
    refuse_input("q float32 2x3 q.npy a b c d", "NAME DTYPE SHAPE FILE");
    refuse_input("2q float32 2x3 q.npy", "not the name of a tensor");
    refuse_input("q complex64 2x3 q.npy", "not a type");
    refuse_input("q float32 2x q.npy", "not a shape");
    refuse_input("q float32 2,3 q.npy", "not a shape");
    refuse_input("q float32 -2x3 q.npy", "not a shape");
    refuse_input("q float32 1x1x1x1x1x1x1x2x3 q.npy", "not a shape");
    refuse_input("q float32 4294967296x4294967296x4 q.npy", "too large");
    refuse_input("q float32 3x2 q.npy", "its shape is not that of \"q\"");
    refuse_input("q float32 6 q.npy", "its shape is not that of \"q\"");
    refuse_input("q float32 scalar q.npy", "its shape is not that of \"q\"");
    refuse_input("q int32 2x3 q.npy", "it holds <f4, not int32");
    refuse_input("q float16 2x3 q.npy", "it holds <f4, not float16");
    refuse_input("q float32 2x3 none.npy", "none.npy: No such file");
    refuse_input("q float32 2x3 ../q.npy", "not the name of a file in this folder");
    refuse_input("q float32 2x3 /q.npy", "not the name of a file in this folder");
}

Test(case, case_with_bad_strides)
{
    refuse_input("q float32 2x3 flat.npy strides=8,2 offset=5", "belong together");
    refuse_input("q float32 2x3 flat.npy strides=8 offset=5 storage=20", "strides=8");
    refuse_input("q float32 2x3 flat.npy strides=8,2,1 offset=5 storage=20", "strides=8,2,1");
    refuse_input("q float32 2x3 flat.npy strides=8,-2 offset=5 storage=20", "strides=8,-2");
    refuse_input("q float32 2x3 flat.npy strides=8,2 offset=5 offset=5", "offset=5");
    refuse_input("q float32 2x3 flat.npy strides=8,2 offset=5 storage=x", "storage=x");
    refuse_input("q float32 2x3 flat.npy strides=8,2 offset=8 storage=20", "does not fit");
    refuse_input("q float32 2x3 flat.npy strides=18446744073709551615,2 offset=1 storage=20",
                 "does not fit");
    refuse_input("q float32 2x3 flat.npy strides=8,2 offset=5 storage=19", "its shape");
}

Test(case, case_with_wrong_counts)
{
    refuse_case(START "inputs = 2\ninput.0 = q float32 2x3 q.npy\noutputs = 0\n", 0,
                "input.1 is missing");
    refuse_case(START "inputs = 0\ninput.0 = q float32 2x3 q.npy\noutputs = 0\n", 5, "one more");
    refuse_case(START "inputs = 2\ninput.0 = q float32 2x3 q.npy\n"
                      "input.1 = q float32 2x3 q.npy\noutputs = 0\n",
                6, "\"q\" is there twice");
    refuse_case(START "inputs = 0\noutputs = 1\noutput.0 = o float32 2x3 want_o.npy\n", 0,
                "output_tol.0 is missing");
    refuse_case(START TENSORS "output_tol.1 = 1 1\n", 10, "one more");
    refuse_case(START TENSORS "output_skip.1 = rows_ge 1\n", 10, "one more");
}

Test(case, case_with_bad_tolerances)
{
    static const char *const lines[] = {
        "1e-5", "1e-5 x", "1e-5 1e-6 1", "-1 1", "1 nan", "inf 0"
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 START "inputs = 0\noutputs = 1\noutput.0 = o float32 2x3 want_o.npy\n"
                       "output_tol.0 = %s\n",
                 lines[i]);
        refuse_case(text, 7, "RTOL ATOL");
    }
    refuse_case(START TENSORS "output_skip.0 = rows_gt 1\n", 10, "rows_ge");
    refuse_case(START TENSORS "output_skip.0 = rows_ge q\n", 10, "no input");
    refuse_case(START TENSORS "output_skip.0 = rows_ge nothing\n", 10, "no input");
}

Test(case, look_ups_of_bad_values)
{
    static const char *const values[] = { "1x", "x", "nan", "inf", "0x", "1 2", "1e999" };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        case_file file;
        char text[512];
        snprintf(text, sizeof text, START "scale = %s\n" TENSORS, values[i]);
        write_case(text);
        cr_assert(case_read(scratch_folder(), &file), "%s", file.error);
        cr_expect_eq(case_float(&file, "scale", 7), 7);
        cr_expect(strstr(file.error, "case.txt:4: "), "%s", file.error);
        file.error[0] = '\0';
        cr_expect_eq(case_int(&file, "scale", 7), 7);
        cr_expect(strstr(file.error, "whole number"), "%s", file.error);
        file.error[0] = '\0';
        cr_expect_eq(case_flag(&file, "scale", true), true);
        cr_expect(strstr(file.error, "neither 0 nor 1"), "%s", file.error);
        case_free(&file);
    }
}

Test(case, values_of_small_types)
{
    static const struct {
        uint16_t bits;
        double half, bfloat;
    } values[] = {
        { 0x0000, 0, 0 },
        { 0x3c00, 1, 0x1p-7 },
        { 0xc000, -2, -2 },
        { 0x0001, 0x1p-24, 0x1p-133 },
        { 0x7bff, 65504, 0x1.fep120 },
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        cr_expect_eq(case_type_value(CASE_FLOAT16, &values[i].bits, 0), values[i].half);
        cr_expect_eq(case_type_value(CASE_BFLOAT16, &values[i].bits, 0), values[i].bfloat);
    }
}
