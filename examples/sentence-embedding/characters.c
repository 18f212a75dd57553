/* The kinds of characters, from utf8proc's categories brought back to Unicode 8.0. */
#include "characters.h"

#include <stdbool.h>
#include <stddef.h>
#include <utf8proc.h>

typedef struct range {
    int32_t first, last;
} range;

/* Ordinary in Unicode 8.0, for most were not assigned, and marks, format characters or punctuation
 * in 15.0, which is utf8proc 2.8: found by asking tokenizers 0.23 for every character there is.
 * tests/tokenizer-check does it again. */
static const range once_ordinary[] = {
    { 0x61d, 0x61d },     { 0x7fd, 0x7fd },     { 0x890, 0x89f },     { 0x8ca, 0x8e2 },
    { 0x9fd, 0x9fe },     { 0xa76, 0xa76 },     { 0xafa, 0xaff },     { 0xb55, 0xb55 },
    { 0xc04, 0xc04 },     { 0xc3c, 0xc3c },     { 0xc77, 0xc77 },     { 0xc84, 0xc84 },
    { 0xd00, 0xd00 },     { 0xd3b, 0xd3c },     { 0xd81, 0xd81 },     { 0xeba, 0xeba },
    { 0xece, 0xece },     { 0x180f, 0x180f },   { 0x1885, 0x1886 },   { 0x1abf, 0x1ace },
    { 0x1b7d, 0x1b7e },   { 0x1df6, 0x1dfb },   { 0x2e43, 0x2e5d },   { 0xa82c, 0xa82c },
    { 0xa8c5, 0xa8c5 },   { 0xa8ff, 0xa8ff },   { 0xa9bd, 0xa9bd },   { 0x10d24, 0x10d27 },
    { 0x10eab, 0x10f89 }, { 0x11070, 0x11074 }, { 0x110c2, 0x110cd }, { 0x111cf, 0x111cf },
    { 0x1123e, 0x11241 }, { 0x1133b, 0x1133b }, { 0x11438, 0x1145e }, { 0x11660, 0x1166c },
    { 0x116b9, 0x116b9 }, { 0x1182f, 0x1183b }, { 0x1193b, 0x11aa2 }, { 0x11b00, 0x11fff },
    { 0x12ff1, 0x12ff2 }, { 0x13430, 0x13455 }, { 0x16e97, 0x16e9a }, { 0x16f4f, 0x16f4f },
    { 0x16fe2, 0x16fe4 }, { 0x1cf00, 0x1cf46 }, { 0x1e000, 0x1e4ef }, { 0x1e944, 0x1e95f },
};

/* The blocks of ideographs. U+2B820 to U+2B91F belong to them, but the tokenizers that models were
 * trained with leave them out. */
static const range chinese[] = {
    { 0x3400, 0x4dbf },   { 0x4e00, 0x9fff },   { 0xf900, 0xfaff },   { 0x20000, 0x2a6df },
    { 0x2a700, 0x2b73f }, { 0x2b740, 0x2b81f }, { 0x2b920, 0x2ceaf }, { 0x2f800, 0x2fa1f },
};

/* Of ranges in ascending order. */
static bool is_in(const range *ranges, size_t count, int32_t code_point)
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (code_point > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && code_point >= ranges[low].first;
}

/* BERT takes all of these for punctuation, "$" and "^" too, which Unicode calls symbols. */
static bool is_ascii_punctuation(int32_t c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

static character_kind kind_of_category(int32_t code_point)
{
    switch (utf8proc_category(code_point)) {
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return CHARACTER_SPACE;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return CHARACTER_PUNCTUATION;
    case UTF8PROC_CATEGORY_MN:
        return CHARACTER_ACCENT;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
        return CHARACTER_CONTROL;
    default:
        return CHARACTER_ORDINARY;
    }
}

character_kind character_kind_of(int32_t code_point)
{
    switch (code_point) {
    case 0:
    case 0xfffd:
        return CHARACTER_CONTROL;
    case '\t':
    case '\n':
    case '\r':
        return CHARACTER_SPACE;
    /* These three have changed sides since Unicode 8.0. */
    case 0x166d:
    case 0x111c9:
        return CHARACTER_PUNCTUATION;
    case 0x1734:
        return CHARACTER_ACCENT;
    }
    if (code_point < 0x80 && is_ascii_punctuation(code_point))
        return CHARACTER_PUNCTUATION;
    if (is_in(chinese, sizeof chinese / sizeof chinese[0], code_point))
        return CHARACTER_CHINESE;
    if (is_in(once_ordinary, sizeof once_ordinary / sizeof once_ordinary[0], code_point))
        return CHARACTER_ORDINARY;
    return kind_of_category(code_point);
}
