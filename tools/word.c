/* Problem words: a table of their parts, which parsing and printing walk alike. */
#include "word.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define LAYER_PREFIX "layer-"
#define AXIS_COUNT 4

/* More than any device holds of anything, and a softcap that a float holds exactly. */
static const size_t largest_number = 1 << 24;

typedef enum part_kind {
    PART_NUMBER, /* a number, into a size_t of the problem */
    PART_SOFTCAP,
    PART_AXES,     /* the axes that a mask or bias has, into an unsigned of the problem */
    PART_CAUSAL,   /* may be followed by "b" */
    PART_DIAGONAL, /* of a window */
    PART_FLAG,     /* a bool of the problem */
    PART_TYPE,     /* an mha_type of the problem */
    PART_LETTER    /* bits only */
} part_kind;

typedef enum part_place {
    IN_BOTH,
    IN_ATTENTION,
    IN_LAYER
} part_place;

typedef struct word_part {
    const char *letters;
    const char *name;
    part_place place;
    bool required;
    part_kind kind;
    size_t field; /* offset in the problem */
    size_t least; /* the smallest number */
    uint64_t uses;
    unsigned flags;
    mha_type type;
} word_part;

#define ATTENTION(member) .field = offsetof(problem, desc.attention.member)
#define TYPE(member, letters_type) \
    IN_ATTENTION, .kind = PART_TYPE, ATTENTION(member), .type = (letters_type)
#define LAYER(member) .place = IN_LAYER, .field = offsetof(problem, desc.member)
#define FLAG(bits) .kind = PART_LETTER, .place = IN_LAYER, .flags = (bits)
#define USES(bits) .kind = PART_LETTER, .uses = (bits)

/* The required parts first; all in the order of the canonical word. */
static const word_part parts[] = {
    { "b", "the batch", .required = true, ATTENTION(batch) },
    { "h", "the heads", .required = true, ATTENTION(heads), .least = 1 },
    { "q", "the query length", .required = true, ATTENTION(query_len) },
    { "k", "the key length", .required = true, ATTENTION(key_len) },
    { "d", "the head dim", IN_ATTENTION, .required = true, ATTENTION(head_dim), .least = 1 },
    { "e", "the model width", .required = true, LAYER(model_width), .least = 1 },

    { "g", "the key and value heads", ATTENTION(kv_heads), .least = 1 },
    { "v", "the value dim", ATTENTION(value_dim), .least = 1 },
    { "iq", "the query width", LAYER(query_width), .least = 1 },
    { "ik", "the key width", LAYER(key_width), .least = 1 },
    { "iv", "the value width", LAYER(value_width), .least = 1 },
    { "o", "the output width", LAYER(output_width), .least = 1 },
    { "c", "causal", .kind = PART_CAUSAL, .uses = MHA_USES_CAUSAL },
    { "wl", "the left window", ATTENTION(window_left), .uses = MHA_USES_WINDOW_LEFT },
    { "wr", "the right window", ATTENTION(window_right), .uses = MHA_USES_WINDOW_RIGHT },
    { "wb", "the window's diagonal", .kind = PART_DIAGONAL },
    { "l", "key lengths", USES(MHA_USES_KEY_LENGTHS) },
    { "L", "key lengths of each query", USES(MHA_USES_KEY_LENGTHS_PER_QUERY) },
    { "P", "key starts", USES(MHA_USES_KEY_STARTS) },
    { "m", "a mask", .kind = PART_AXES, ATTENTION(mask_broadcast), .uses = MHA_USES_MASK },
    { "a", "a bias", .kind = PART_AXES, ATTENTION(bias_broadcast), .uses = MHA_USES_BIAS },
    { "s", "the softcap", .kind = PART_SOFTCAP, .least = 1 },
    { "A", "ALiBi", USES(MHA_USES_ALIBI) },
    { "S", "sinks", USES(MHA_USES_SINKS) },
    { "B", "biases of projections", FLAG(MHA_LAYER_BIAS_ALL) },
    { "T", "weights out x in", FLAG(MHA_LAYER_OUT_IN) },
    { "M", "merged heads as output", FLAG(MHA_LAYER_MERGED_OUTPUT) },
    { "x", "cross-attention", IN_LAYER, .kind = PART_FLAG, .field = offsetof(problem, is_cross) },
    { "p", "probs", USES(MHA_USES_PROBS) },
    { "e", "lse", USES(MHA_USES_LSE) },
    { "n", "merged heads", IN_ATTENTION, .kind = PART_FLAG, .field = offsetof(problem, is_merged) },
    { "tf16", "the type", TYPE(type, MHA_FLOAT16) },
    { "tbf16", "the type", TYPE(type, MHA_BFLOAT16) },
    { "tkf16", "the type of keys", TYPE(key_value_type, MHA_FLOAT16) },
    { "tkbf16", "the type of keys", TYPE(key_value_type, MHA_BFLOAT16) },
    { "tkf32", "the type of keys", TYPE(key_value_type, MHA_FLOAT32) },
};

#define PART_COUNT (sizeof parts / sizeof parts[0])

static const struct {
    char letter;
    unsigned bit;
} axes[AXIS_COUNT] = {
    { 'b', MHA_AXIS_BATCH },
    { 'h', MHA_AXIS_HEADS },
    { 'q', MHA_AXIS_QUERY },
    { 'k', MHA_AXIS_KEY },
};

typedef struct parser {
    const char *word;
    const char *next;              /* the first character that is not read yet */
    const char *found[PART_COUNT]; /* where each part began, or NULL */
    problem *out;
    char *error;
    size_t error_size;
} parser;

/* Writes the sentence about the character at `where`. Returns false. */
static bool refuse(const parser *p, const char *where, const char *format, ...)
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

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool read_number(parser *p, const word_part *part, size_t *number)
{
    const char *start = p->next;
    *number = 0;
    if (!is_digit(*start))
        return refuse(p, start, "%s needs a number after \"%s\"", part->name, part->letters);
    for (; is_digit(*p->next); p->next++) {
        *number = *number * 10 + (size_t)(*p->next - '0');
        if (*number > largest_number)
            return refuse(p, start, "%s is above %zu, the largest number", part->name,
                          largest_number);
    }
    if (*number < part->least)
        return refuse(p, start, "%s is at least %zu", part->name, part->least);
    return true;
}

/* The axes that stand next are there, the others broadcast; with none, all are there. */
static unsigned read_broadcast(parser *p)
{
    const char *start = p->next;
    unsigned broadcast = 0;
    for (size_t i = 0; i < AXIS_COUNT; i++) {
        if (*p->next == axes[i].letter)
            p->next++;
        else
            broadcast |= axes[i].bit;
    }
    return p->next == start ? 0 : broadcast;
}

/* What stands behind the part's letters, into the problem. */
static bool read_value(parser *p, const word_part *part)
{
    char *field = (char *)p->out + part->field;
    size_t number = 0;
    unsigned broadcast;

    switch (part->kind) {
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

static bool read_part(parser *p, size_t index)
{
    const word_part *part = &parts[index];
    const char *start = p->next;
    p->found[index] = start;
    p->next += strlen(part->letters);
    p->out->desc.attention.uses |= part->uses;
    p->out->desc.flags |= part->flags;
    return read_value(p, part);
}

static bool fits(const word_part *part, const problem *subject)
{
    return part->place == IN_BOTH || (part->place == IN_LAYER) == subject->is_layer;
}

static bool read_required(parser *p)
{
    for (size_t i = 0; i < PART_COUNT; i++) {
        if (!parts[i].required || !fits(&parts[i], p->out))
            continue;
        if (!starts_with(p->next, parts[i].letters))
            return refuse(p, p->next, "here stands \"%s\" and a number, %s", parts[i].letters,
                          parts[i].name);
        if (!read_part(p, i))
            return false;
    }
    return true;
}

/* Where a part that says the same thing began, or NULL: itself, or a type of the same tensors. */
static const char *find_same(const parser *p, size_t index)
{
    for (size_t i = 0; i < PART_COUNT; i++)
        if (p->found[i] && (i == index || (parts[i].type && parts[index].type &&
                                           parts[i].field == parts[index].field)))
            return p->found[i];
    return NULL;
}

static bool read_option(parser *p)
{
    for (size_t i = 0; i < PART_COUNT; i++) {
        if (parts[i].required || !starts_with(p->next, parts[i].letters))
            continue;
        if (!fits(&parts[i], p->out))
            return refuse(p, p->next, "\"%s\", %s, is for %s only", parts[i].letters, parts[i].name,
                          parts[i].place == IN_LAYER ? "layers" : "attentions");
        const char *const before = find_same(p, i);
        if (before)
            return refuse(p, p->next, "\"%s\", %s, is there already at character %td",
                          parts[i].letters, parts[i].name, before - p->word + 1);
        return read_part(p, i);
    }
    return refuse(p, p->next, "no option begins with \"%s\"", p->next);
}

/* Says where the diagonal lies, if there is one to say it of. */
static bool settle_diagonal(parser *p)
{
    const uint64_t followers = MHA_USES_WINDOW_LEFT | MHA_USES_WINDOW_RIGHT | MHA_USES_ALIBI;
    mha_attention_desc *desc = &p->out->desc.attention;
    for (size_t i = 0; i < PART_COUNT; i++) {
        if (parts[i].kind != PART_DIAGONAL || !p->found[i])
            continue;
        if (desc->uses & MHA_USES_CAUSAL)
            return refuse(p, p->found[i], "with causal write \"cb\" instead");
        if (!(desc->uses & followers))
            return refuse(p, p->found[i], "there is neither \"wl\" nor \"wr\" nor \"A\"");
    }
    if (desc->uses & (followers | MHA_USES_CAUSAL) && desc->diagonal == MHA_DIAGONAL_NONE)
        desc->diagonal = MHA_TOP_LEFT;
    return true;
}

/* "B" is a bias for each projection that there is. */
static void settle_biases(problem *out)
{
    if (out->desc.flags & MHA_LAYER_MERGED_OUTPUT)
        out->desc.flags &= ~MHA_LAYER_BIAS_OUTPUT;
}

bool word_parse(const char *word, problem *out, char *error, size_t error_size)
{
    parser p = { .word = word, .next = word, .out = out, .error = error, .error_size = error_size };
    memset(out, 0, sizeof *out);
    if (starts_with(word, LAYER_PREFIX)) {
        out->is_layer = true;
        p.next += strlen(LAYER_PREFIX);
    }
    bool ok = read_required(&p);
    while (ok && *p.next)
        ok = read_option(&p);
    ok = ok && settle_diagonal(&p);
    settle_biases(out);
    if (!ok)
        memset(out, 0, sizeof *out);
    return ok;
}

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
    for (size_t i = 0; broadcast && i < AXIS_COUNT; i++) {
        if (!(broadcast & axes[i].bit))
            print(p, "%c", axes[i].letter);
    }
}

/* A part without bits of its own is there if what it sets is not 0. */
static bool is_there(const word_part *part, const problem *subject)
{
    const mha_attention_desc *desc = &subject->desc.attention;
    const char *const field = (const char *)subject + part->field;
    size_t number;
    bool flag;
    mha_type type;
    if (part->uses || part->flags)
        return desc->uses & part->uses || subject->desc.flags & part->flags;
    switch (part->kind) {
    case PART_NUMBER:
        memcpy(&number, field, sizeof number);
        return number || part->required;
    case PART_SOFTCAP:
        return desc->softcap != 0;
    case PART_DIAGONAL:
        return desc->diagonal == MHA_BOTTOM_RIGHT && !(desc->uses & MHA_USES_CAUSAL);
    case PART_FLAG:
        memcpy(&flag, field, sizeof flag);
        return flag;
    case PART_TYPE:
        memcpy(&type, field, sizeof type);
        return type == part->type;
    default:
        return false;
    }
}

static void print_value(printer *p, const word_part *part, const problem *subject)
{
    const char *field = (const char *)subject + part->field;
    size_t number;
    unsigned broadcast;
    switch (part->kind) {
    case PART_NUMBER:
        memcpy(&number, field, sizeof number);
        print(p, "%zu", number);
        break;
    case PART_SOFTCAP:
        print(p, "%.0f", (double)subject->desc.attention.softcap);
        break;
    case PART_AXES:
        memcpy(&broadcast, field, sizeof broadcast);
        print_axes(p, broadcast);
        break;
    case PART_CAUSAL:
        if (subject->desc.attention.diagonal == MHA_BOTTOM_RIGHT)
            print(p, "b");
        break;
    default:
        break;
    }
}

size_t word_print(const problem *subject, char *word, size_t word_size)
{
    printer p = { .word = word, .size = word_size };
    print(&p, "%s", subject->is_layer ? LAYER_PREFIX : "");
    for (size_t i = 0; i < PART_COUNT; i++) {
        if (!fits(&parts[i], subject) || !is_there(&parts[i], subject))
            continue;
        print(&p, "%s", parts[i].letters);
        print_value(&p, &parts[i], subject);
    }
    return p.length;
}
