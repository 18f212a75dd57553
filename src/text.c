/* Text that grows into a caller's array, counting what does not fit, as snprintf does. */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>

void mha_text_add(mha_text *text, const char *format, ...)
{
    const size_t used = text->length < text->capacity ? text->length : text->capacity;
    va_list list;
    va_start(list, format);
    const int more =
        vsnprintf(text->capacity ? text->at + used : NULL, text->capacity - used, format, list);
    va_end(list);
    if (more > 0)
        text->length += (size_t)more;
}
