/* Text that grows into a caller's array, counting what does not fit, as snprintf does. */
#ifndef MHA_TEXT_H
#define MHA_TEXT_H

#include "log.h"

typedef struct mha_text {
    char *at; /* may be NULL with capacity 0 */
    size_t capacity;
    size_t length; /* of the whole text, without the closing 0 */
} mha_text;

void mha_text_add(mha_text *text, const char *format, ...) MHA_PRINTF(2, 3);

#endif
