/* What stands behind the letters of a problem word's parts. */
#include "word_parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* More than any device holds of anything, and a softcap that a float holds exactly. */
static const size_t largest_number = 1 << 24;

bool word_refuse(const word_parser *p, const char *where, const char *format, ...)
{
    const int length =
        snprintf(p->error, p->error_size, "\"%s\", character %td: ", p->word, where - p->word + 1);
    if (length >= 0 && (size_t)length < p->error_size) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(p->error + length, p->error_size - (size_t)length, format, arguments);
        va_end(arguments);
    }
    return false;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool read_number(word_parser *p, const word_part *part, size_t *number)
{
    const char *start = p->next;
    *number = 0;
    if (!is_digit(*start))
        return word_refuse(p, start, "%s needs a number after \"%s\"", part->name, part->letters);
    for (; is_digit(*p->next); p->next++) {
        *number = *number * 10 + (size_t)(*p->next - '0');
        if (*number > largest_number)
            return word_refuse(p, start, "%s is above %zu, the largest number", part->name,
                               largest_number);
    }
    if (*number < part->least)
        return word_refuse(p, start, "%s is at least %zu", part->name, part->least);
    return true;
}

/* The axes that stand next are there, the others broadcast; with none, all are there. */
static unsigned read_broadcast(word_parser *p)
{
    const char *start = p->next;
    unsigned broadcast = 0;
    for (size_t i = 0; i < WORD_AXES; i++) {
        if (*p->next == word_axes[i].letter)
            p->next++;
        else
            broadcast |= word_axes[i].bit;
    }
    return p->next == start ? 0 : broadcast;
}

/* "0", or "0." and up to six decimals: a float tells so many apart, and so prints them. */
static bool read_share(word_parser *p, const word_part *part, float *share)
{
    const char *start = p->next;
    unsigned number = 0, scale = 1;
    if (*p->next != '0')
        return word_refuse(p, start, "%s needs a number below 1 after \"%s\", such as 0.1",
                           part->name, part->letters);
    *share = 0;
    if (*++p->next != '.')
        return true;
    if (!is_digit(*++p->next))
        return word_refuse(p, p->next, "%s needs a decimal after the point", part->name);
    for (; is_digit(*p->next); p->next++, scale *= 10) {
        if (scale == 1000000)
            return word_refuse(p, p->next, "%s has at most six decimals", part->name);
        number = number * 10 + (unsigned)(*p->next - '0');
    }
    *share = (float)((double)number / scale);
    return true;
}

/* Nothing, a number, and then "i" or not. */
static bool read_rotary(word_parser *p, const word_part *part)
{
    mha_attention_desc *desc = &p->out->desc.attention;
    if (is_digit(*p->next) && !read_number(p, part, &desc->rotary_dim))
        return false;
    if (*p->next != 'i')
        return true;
    p->next++;
    desc->rotary_pairs = MHA_ROTARY_INTERLEAVED;
    return true;
}

static void read_packed(word_parser *p)
{
    const bool only_queries = *p->next == 'q', only_keys = *p->next == 'k';
    p->next += only_queries || only_keys;
    p->out->desc.attention.uses |=
        (only_keys ? 0 : MHA_USES_QUERY_OFFSETS) | (only_queries ? 0 : MHA_USES_KEY_OFFSETS);
}

static bool read_function(word_parser *p, const word_part *part)
{
    for (size_t i = 0; i < WORD_FUNCTIONS; i++) {
        if (*p->next != word_functions[i].letter)
            continue;
        p->next++;
        p->out->ffn.activation = word_functions[i].kind;
        return true;
    }
    return word_refuse(p, p->next, "%s needs r, g, t or s after \"%s\"", part->name, part->letters);
}

static bool read_stage(word_parser *p, const word_part *part)
{
    if (*p->next < '0' || *p->next > '2')
        return word_refuse(p, p->next, "%s need 0, 1 or 2 after \"%s\"", part->name, part->letters);
    p->out->desc.attention.scores_stage = (mha_scores_stage)(*p->next++ - '0');
    return true;
}

bool word_read_value(word_parser *p, const word_part *part)
{
    char *field = (char *)p->out + part->field;
    size_t number = 0;
    unsigned broadcast;

    switch (part->kind) {
    case PART_LENGTHS:
        if (!is_digit(*p->next))
            return true;
        /* fallthrough */
    case PART_NUMBER:
        if (!read_number(p, part, &number))
            return false;
        memcpy(field, &number, sizeof number);
        return true;
    case PART_SOFTCAP:
        if (!read_number(p, part, &number))
            return false;
        p->out->desc.attention.softcap = (float)number;
        return true;
    case PART_MASK:
        broadcast = read_broadcast(p);
        memcpy(field, &broadcast, sizeof broadcast);
        p->out->mask_share = WORD_MASK_SHARE;
        return !is_digit(*p->next) || read_share(p, part, &p->out->mask_share);
    case PART_SHARE:
        return read_share(p, part, &p->out->desc.attention.dropout_p);
    case PART_ROTARY:
        return read_rotary(p, part);
    case PART_PACKED:
        read_packed(p);
        return true;
    case PART_STAGE:
        return read_stage(p, part);
    case PART_FUNCTION:
        return read_function(p, part);
    case PART_AXES:
        broadcast = read_broadcast(p);
        memcpy(field, &broadcast, sizeof broadcast);
        return true;
    case PART_CAUSAL:
        if (*p->next != 'b')
            return true;
        p->next++;
        p->out->desc.attention.diagonal = MHA_BOTTOM_RIGHT;
        return true;
    case PART_DIAGONAL:
        p->out->desc.attention.diagonal = MHA_BOTTOM_RIGHT;
        return true;
    case PART_FLAG:
        memcpy(field, &(const bool){ true }, sizeof(bool));
        return true;
    case PART_TYPE:
        memcpy(field, &part->type, sizeof part->type);
        return true;
    case PART_LETTER:
    default:
        return true;
    }
}
