/* Memory that ends where the process may touch no more. */
#define _GNU_SOURCE
#include "page_end.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *page_end_new(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t room = (bytes + page - 1) / page * page;
    char *memory =
        mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(memory != MAP_FAILED && !mprotect(memory + room, page, PROT_NONE));
    return memory + room - bytes;
}

void *page_end_copy(const void *from, size_t bytes)
{
    return memcpy(page_end_new(bytes), from, bytes);
}

float *page_end_nans(size_t count)
{
    float *data = page_end_new(count * sizeof *data);
    for (size_t i = 0; i < count; i++)
        data[i] = NAN;
    return data;
}

void *page_untouchable(void)
{
    void *page =
        mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(page != MAP_FAILED);
    return page;
}
