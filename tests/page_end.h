/* Memory that ends where the process may touch no more, so that reading or writing too far is seen.
 * It is never given back: a test's process is its own. */
#ifndef MHA_TESTS_PAGE_END_H
#define MHA_TESTS_PAGE_END_H

#include <stddef.h>

/* Its last byte is the last of a page, with a page behind it that nobody may touch. */
void *page_end_new(size_t bytes);
void *page_end_copy(const void *from, size_t bytes);
/* Floats, all NaN. */
float *page_end_nans(size_t count);

/* Memory that ends the process if anybody touches it at all. */
void *page_untouchable(void);

#endif
