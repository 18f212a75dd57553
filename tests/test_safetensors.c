/* The reader of .safetensors files: what it takes, and that damage of any kind gets a sentence and
 * no crash. */
#include "safetensors.h"
#include "scratch.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(safetensors, .init = scratch_make, .fini = scratch_remove);

/* Makes the bytes of a file: the header's length, the header, `size` bytes of 0, 1, 2 .. Returns
 * how many they are. */
static size_t make_file(unsigned char *bytes, const char *header, size_t size)
{
    const size_t length = strlen(header);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < size; i++)
        bytes[8 + length + i] = (unsigned char)i;
    return 8 + length + size;
}

/* Writes the bytes and opens them. */
static safetensors_file *open_bytes(const void *bytes, size_t size, char *error, size_t error_size)
{
    scratch_write("model.safetensors", bytes, size);
    return safetensors_open(scratch_path("model.safetensors"), error, error_size);
}

static safetensors_file *open_header(const char *header, size_t size, char *error,
                                     size_t error_size)
{
    unsigned char bytes[2048];
    return open_bytes(bytes, make_file(bytes, header, size), error, error_size);
}

/* Three types, a scalar, an empty tensor and one that nobody reads; the header's length is odd, so
 * that no float32 is aligned. */
static const char good_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[24,28]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"ids\":{\"dtype\":\"I64\",\"shape\":[1,1],\"data_offsets\":[30,38]},"
    "\"h\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[28,30]},"
    "\"none\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[38,38]}} ";
#define GOOD_BYTES 38

Test(safetensors, values)
{
    char error[300] = "";
    static const size_t two_three[] = { 2, 3 }, two[] = { 2 };
    safetensors_file *const file = open_header(good_header, GOOD_BYTES, error, sizeof error);
    cr_assert(file, "%s", error);
    const safetensors_tensor *const a = safetensors_find(file, "a", 2, two_three, error, 300);
    const safetensors_tensor *const b = safetensors_find(file, "b", 1, two, error, 300);
    const safetensors_tensor *const h = safetensors_find(file, "h", 0, NULL, error, 300);
    cr_assert(a && b && h, "%s", error);
    float out[3] = { -1, -1, -1 };
    safetensors_read(a, 4, 2, out);
    /* Bytes 16 17 18 19 from the least: 0x13121110. */
    cr_assert_eq(out[0], (float)ldexp(0x121110 + 0x800000, (0x13121110 >> 23) - 127 - 23));
    cr_assert_eq(out[2], -1);
    safetensors_read(b, 1, 1, out);
    /* 0x1b1a: exponent 0x36, fraction 0x1a. */
    cr_assert_eq(out[0], (float)ldexp(0x1a + 0x80, 0x36 - 127 - 7));
    safetensors_read(h, 0, 1, out);
    cr_assert_eq(out[0], (float)ldexp((0x1d1c & 1023) + 1024, (0x1d1c >> 10) - 25));
    safetensors_close(file);
}

/* Every kind of a float16. */
Test(safetensors, half_floats)
{
    static const struct {
        uint16_t bits;
        float value;
    } halves[] = {
        { 0x0000, 0 },
        { 0x8000, -0.0f },
        { 0x3c00, 1 },
        { 0xc000, -2 },
        { 0x7bff, 65504 },
        { 0x0001, 0x1p-24f },
        { 0x83ff, -0x1.ff8p-15f },
        { 0x0400, 0x1p-14f },
        { 0x7c00, INFINITY },
        { 0xfc00, -INFINITY },
        { 0x7e00, NAN },
    };
    for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++) {
        const unsigned char bytes[] = { (unsigned char)halves[i].bits,
                                        (unsigned char)(halves[i].bits >> 8) };
        const safetensors_tensor tensor = {
            .type = SAFETENSORS_FLOAT16, .count = 1, .data = bytes, .bytes = 2
        };
        float value = 7;
        safetensors_read(&tensor, 0, 1, &value);
        cr_expect(isnan(halves[i].value) ? isnan(value) : value == halves[i].value, "0x%04x: %g",
                  halves[i].bits, value);
        cr_expect_eq(!signbit(value), !signbit(halves[i].value), "0x%04x", halves[i].bits);
    }
}

Test(safetensors, tensors_that_are_not_as_asked)
{
    char error[300] = "";
    static const size_t shape[] = { 3, 2 }, one_one[] = { 1, 1 };
    safetensors_file *const file = open_header(good_header, GOOD_BYTES, error, sizeof error);
    cr_assert(file, "%s", error);
    cr_assert(!safetensors_find(file, "c.weight", 2, shape, error, sizeof error));
    cr_assert_str_eq(error, "it has no tensor c.weight");
    cr_assert(!safetensors_find(file, "a", 2, shape, error, sizeof error));
    cr_assert_str_eq(error, "its tensor a is 2 x 3, not 3 x 2");
    cr_assert(!safetensors_find(file, "h", 1, shape, error, sizeof error));
    cr_assert_str_eq(error, "its tensor h is a scalar, not 3");
    cr_assert(!safetensors_find(file, "ids", 2, one_one, error, sizeof error));
    cr_assert_str_eq(error, "its tensor ids is none of F32, F16 and BF16");
    safetensors_close(file);
}

#define TENSOR(name, type, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

Test(safetensors, refusals)
{
    static const struct {
        const char *header;
        size_t bytes;
        const char *says;
    } files[] = {
        { "", 0, "no JSON object" },
        { "[]", 0, "no JSON object" },
        { " {}", 0, "no JSON object" },
        { "{", 0, "no good JSON" },
        { "{} x", 0, "no good JSON" },
        { "{\"a\":1}", 0, "tensor a is no object" },
        { "{" TENSOR("a", "F32", "[1]", "0", "4") "," TENSOR("a", "F32", "[1]", "0", "4") "}", 4,
          "duplicate" },
        { "{" TENSOR("a", "F33", "[1]", "0", "4") "}", 4, "a has a dtype that is not known" },
        { "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "a has no dtype" },
        { "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "a has no shape" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "a has no data_offsets" },
        { "{" TENSOR("a", "F32", "[-1]", "0", "4") "}", 4, "not of whole numbers" },
        { "{" TENSOR("a", "F32", "[1.0]", "0", "4") "}", 4, "not of whole numbers" },
        { "{" TENSOR("a", "F32", "[4294967296,4294967296]", "0", "4") "}", 4, "too large" },
        { "{" TENSOR("a", "F32", "[0,4294967296,4294967296]", "0", "0") "}", 0, "too large" },
        { "{" TENSOR("a", "F32", "[99999999999999999999]", "0", "4") "}", 4, "no good JSON" },
        { "{" TENSOR("a", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "more than 8 axes" },
        { "{" TENSOR("a", "F32", "[1]", "4", "0") "}", 4, "no data_offsets" },
        { "{" TENSOR("a", "F32", "[1]", "0", "-4") "}", 4, "no data_offsets" },
        { "{" TENSOR("a", "F32", "[1]", "0", "4,8") "}", 8, "no data_offsets" },
        { "{" TENSOR("a", "F32", "[2]", "0", "8") "}", 4, "a goes on after the file's end" },
        { "{" TENSOR("a", "F32", "[1]", "9223372036854775803", "9223372036854775807") "}", 4,
          "a goes on after the file's end" },
        { "{" TENSOR("a", "F32", "[1]", "0", "8") "}", 8, "do not fit its dtype and shape" },
        { "{" TENSOR("a", "F32", "[1]", "0", "4") "," TENSOR("b", "F32", "[1]", "2", "6") "}", 6,
          "b overlaps a" },
        { "{" TENSOR("a", "F32", "[1]", "0", "4") "," TENSOR("b", "F32", "[1]", "5", "9") "}", 9,
          "b leaves a gap behind a" },
        { "{" TENSOR("a", "F32", "[1]", "1", "5") "}", 5, "a leaves a gap behind the header" },
        { "{" TENSOR("a", "F32", "[1]", "0", "4") "}", 5, "goes on after its last tensor" },
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char error[300] = "";
        safetensors_file *const file =
            open_header(files[i].header, files[i].bytes, error, sizeof error);
        cr_expect(!file, "file %zu, %s", i, files[i].header);
        cr_expect(strstr(error, files[i].says), "file %zu: %s", i, error);
        safetensors_close(file);
    }
}

Test(safetensors, frames)
{
    char error[300] = "";
    const unsigned char huge[] = { 255, 255, 255, 255, 255, 255, 255, 255, '{', '}' };
    const unsigned char above[] = { 3, 0, 0, 0, 0, 0, 0, 0, '{', '}' };
    const unsigned char empty[] = { 2, 0, 0, 0, 0, 0, 0, 0, '{', '}' };
    cr_assert(!open_bytes("", 0, error, sizeof error));
    cr_assert(strstr(error, "shorter than the 8 bytes"), "%s", error);
    cr_assert(!open_bytes(huge, sizeof huge, error, sizeof error));
    cr_assert(strstr(error, "18446744073709551615 bytes"), "%s", error);
    cr_assert(!open_bytes(above, sizeof above, error, sizeof error));
    cr_assert_str_eq(error, "it ends within its header");
    cr_assert(!safetensors_open(scratch_folder(), error, sizeof error));
    cr_assert_str_eq(error, "it is not a plain file");
    cr_assert(!safetensors_open(scratch_path("none"), error, sizeof error));
    cr_assert_str_eq(error, "No such file or directory");
    safetensors_file *const file = open_bytes(empty, sizeof empty, error, sizeof error);
    cr_assert(file, "%s", error);
    cr_assert(!safetensors_find(file, "a", 0, NULL, error, sizeof error));
    safetensors_close(file);
}

/* Opens the bytes and, where that goes well, reads all that can be read. */
static bool survives(const unsigned char *bytes, size_t size)
{
    static const size_t two_three[] = { 2, 3 };
    char error[300] = "";
    safetensors_file *const file = open_bytes(bytes, size, error, sizeof error);
    if (!file)
        return *error;
    const safetensors_tensor *const a = safetensors_find(file, "a", 2, two_three, error, 300);
    float values[6];
    if (a)
        safetensors_read(a, 0, 6, values);
    safetensors_close(file);
    return a || *error;
}

/* Each cut length, each byte changed to each of some others, and random damage in several places:
 * a sanitizer sees what is read outside the file. */
Test(safetensors, damage)
{
    unsigned char good[2048], bytes[2048];
    const size_t size = make_file(good, good_header, GOOD_BYTES);
    srand(7);
    for (size_t length = 0; length < size; length++)
        cr_expect(survives(good, length), "cut to %zu bytes", length);
    for (size_t at = 0; at < size; at++) {
        static const unsigned char values[] = { 0, '0', '9', '-', '"', '{', ']', 0xff };
        for (size_t i = 0; i < sizeof values; i++) {
            memcpy(bytes, good, size);
            bytes[at] = values[i];
            cr_expect(survives(bytes, size), "byte %zu is 0x%02x", at, values[i]);
        }
    }
    for (int round = 0; round < 5000; round++) {
        memcpy(bytes, good, size);
        for (int i = rand() % 4; i >= 0; i--)
            bytes[(size_t)rand() % size] ^= (unsigned char)(1 << rand() % 8);
        cr_expect(survives(bytes, size), "round %d", round);
    }
}
