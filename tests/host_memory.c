/* Plain arrays for the host-array calls. */
#include "host_memory.h"

#include "page_end.h"
#include "stored.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum {
    GAP = 3,      /* elements behind each row but the last */
    POISON = 0xff /* two of these are a NaN of each type */
};

static size_t rows_of(const size_t shape[4])
{
    return shape[0] * shape[1] * shape[2];
}

/* From one row to the next; in elements. */
static size_t row_of(const size_t shape[4], bool gaps)
{
    return shape[3] + (gaps ? GAP : 0);
}

static void *make(mha_type type, const size_t shape[4], bool gaps, size_t strides[4])
{
    const size_t row = row_of(shape, gaps), rows = rows_of(shape);
    const size_t bytes = (rows ? (rows - 1) * row + shape[3] : 0) * stored_bytes(type);
    const size_t list[4] = { shape[1] * shape[2] * row, shape[2] * row, row, 1 };
    if (gaps)
        memcpy(strides, list, sizeof list);
    return memset(page_end_new(bytes), POISON, bytes);
}

mha_host_input host_input(mha_type type, const size_t shape[4], bool gaps, const float *data)
{
    mha_host_input input = { 0 };
    if (!data)
        return input;
    const size_t bytes = stored_bytes(type), row = row_of(shape, gaps) * bytes;
    unsigned char *memory = make(type, shape, gaps, input.strides);
    unsigned char *stored = stored_pack(type, data, rows_of(shape) * shape[3]);
    for (size_t i = 0; i < rows_of(shape); i++)
        memcpy(memory + i * row, stored + i * shape[3] * bytes, shape[3] * bytes);
    free(stored);
    input.data = memory;
    return input;
}

mha_host_output host_output(mha_type type, const size_t shape[4], bool gaps)
{
    mha_host_output output = { 0 };
    output.data = make(type, shape, gaps, output.strides);
    return output;
}

void host_read(const char *name, const mha_host_output *output, mha_type type,
               const size_t shape[4], void *data)
{
    const size_t bytes = stored_bytes(type), row = shape[3] * bytes, rows = rows_of(shape);
    const size_t step = output->strides[2] ? output->strides[2] * bytes : row;
    const unsigned char *from = output->data;
    for (size_t i = 0; i < rows; i++) {
        memcpy((unsigned char *)data + i * row, from + i * step, row);
        for (size_t k = row; k < step && i + 1 < rows; k++)
            cr_assert_eq(from[i * step + k], POISON, "%s: written behind row %zu", name, i);
    }
}

const void *host_row(mha_type type, size_t count, const float *data)
{
    return host_input(type, (size_t[]){ 1, 1, 1, count }, false, data).data;
}
