/* Problem words are printed here. */
#include "word_table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct printer {
    char *word;
    size_t size;
    size_t length; /* of the whole word, also where it does not fit */
} printer;

static void print(printer *p, const char *format, ...)
{
    const size_t used = p->length < p->size ? p->length : p->size;
    va_list arguments;
    va_start(arguments, format);
    const int more = vsnprintf(p->word ? p->word + used : NULL, p->size - used, format, arguments);
    va_end(arguments);
    if (more > 0)
        p->length += (size_t)more;
}

static void print_axes(printer *p, unsigned broadcast)
{
    for (size_t i = 0; broadcast && i < WORD_AXES; i++) {
        if (!(broadcast & word_axes[i].bit))
            print(p, "%c", word_axes[i].letter);
    }
}

/* The decimals that there are. */
static void print_share(printer *p, float share)
{
    char digits[16];
    snprintf(digits, sizeof digits, "%.6f", (double)share);
    size_t length = strlen(digits);
    while (digits[length - 1] == '0')
        length--;
    length -= digits[length - 1] == '.';
    print(p, "%.*s", (int)length, digits);
}

static void print_packed(printer *p, uint64_t uses)
{
    if (!(uses & MHA_USES_KEY_OFFSETS))
        print(p, "q");
    if (!(uses & MHA_USES_QUERY_OFFSETS))
        print(p, "k");
}

/* A part without bits of its own is there if what it sets is not 0. */
static bool is_there(const word_part *part, const problem *subject)
{
    const mha_attention_desc *desc = &subject->desc.attention;
    const char *const field = (const char *)subject + part->field;
    size_t number;
    bool flag;
    mha_type type;
    if (part->uses || part->cross_uses || part->flags || part->ffn_flags || part->gemm_flags)
        return desc->uses & part->uses || subject->cross_uses & part->cross_uses ||
               subject->desc.flags & part->flags || subject->ffn.flags & part->ffn_flags ||
               subject->gemm.flags & part->gemm_flags;
    switch (part->kind) {
    case PART_NUMBER:
        memcpy(&number, field, sizeof number);
        return number || part->required;
    case PART_SOFTCAP:
        return desc->softcap != 0;
    case PART_DIAGONAL:
        return desc->diagonal == MHA_BOTTOM_RIGHT && !(desc->uses & MHA_USES_CAUSAL);
    case PART_PACKED:
        return desc->uses & (MHA_USES_QUERY_OFFSETS | MHA_USES_KEY_OFFSETS);
    case PART_FLAG:
        memcpy(&flag, field, sizeof flag);
        return flag;
    case PART_FUNCTION:
        return subject->ffn.activation != WORD_FUNCTION;
    case PART_TYPE:
        memcpy(&type, field, sizeof type);
        return type == part->type;
    default:
        return false;
    }
}

static void print_value(printer *p, const word_part *part, const problem *subject)
{
    const mha_attention_desc *desc = &subject->desc.attention;
    const char *field = (const char *)subject + part->field;
    size_t number;
    unsigned broadcast;
    switch (part->kind) {
    case PART_NUMBER:
        memcpy(&number, field, sizeof number);
        print(p, "%zu", number);
        break;
    case PART_LENGTHS:
        memcpy(&number, field, sizeof number);
        if (number)
            print(p, "%zu", number);
        break;
    case PART_SOFTCAP:
        print(p, "%.0f", (double)desc->softcap);
        break;
    case PART_AXES:
        memcpy(&broadcast, field, sizeof broadcast);
        print_axes(p, broadcast);
        break;
    case PART_MASK:
        memcpy(&broadcast, field, sizeof broadcast);
        print_axes(p, broadcast);
        if (subject->mask_share != WORD_MASK_SHARE)
            print_share(p, subject->mask_share);
        break;
    case PART_CAUSAL:
        if (desc->diagonal == MHA_BOTTOM_RIGHT)
            print(p, "b");
        break;
    case PART_SHARE:
        print_share(p, desc->dropout_p);
        break;
    case PART_ROTARY:
        if (desc->rotary_dim)
            print(p, "%zu", desc->rotary_dim);
        print(p, "%s", desc->rotary_pairs == MHA_ROTARY_INTERLEAVED ? "i" : "");
        break;
    case PART_PACKED:
        print_packed(p, desc->uses);
        break;
    case PART_FUNCTION:
        for (size_t i = 0; i < WORD_FUNCTIONS; i++)
            if (subject->ffn.activation == word_functions[i].kind)
                print(p, "%c", word_functions[i].letter);
        break;
    case PART_STAGE:
        print(p, "%d", (int)desc->scores_stage);
        break;
    default:
        break;
    }
}

size_t word_print(const problem *subject, char *word, size_t word_size)
{
    printer p = { .word = word, .size = word_size };
    print(&p, "%s", word_prefixes[subject->kind]);
    for (size_t i = 0; i < WORD_PARTS; i++) {
        if (!word_fits(&word_parts[i], subject) || !is_there(&word_parts[i], subject))
            continue;
        print(&p, "%s", word_parts[i].letters);
        print_value(&p, &word_parts[i], subject);
    }
    return p.length;
}
