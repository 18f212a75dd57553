/* Problem words are read here. */
#include "word_table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* More than any device holds of anything, and a softcap that a float holds exactly. */
static const size_t largest_number = 1 << 24;

typedef struct parser {
    const char *word;
    const char *next;              /* the first character that is not read yet */
    const char *found[WORD_PARTS]; /* where each part began, or NULL */
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
    for (size_t i = 0; i < WORD_AXES; i++) {
        if (*p->next == word_axes[i].letter)
            p->next++;
        else
            broadcast |= word_axes[i].bit;
    }
    return p->next == start ? 0 : broadcast;
}

/* "0", or "0." and up to six decimals: a float tells so many apart, and so prints them. */
static bool read_share(parser *p, const word_part *part, float *share)
{
    const char *start = p->next;
    unsigned number = 0, scale = 1;
    if (*p->next != '0')
        return refuse(p, start, "%s needs a number below 1 after \"%s\", such as 0.1", part->name,
                      part->letters);
    *share = 0;
    if (*++p->next != '.')
        return true;
    if (!is_digit(*++p->next))
        return refuse(p, p->next, "%s needs a decimal after the point", part->name);
    for (; is_digit(*p->next); p->next++, scale *= 10) {
        if (scale == 1000000)
            return refuse(p, p->next, "%s has at most six decimals", part->name);
        number = number * 10 + (unsigned)(*p->next - '0');
    }
    *share = (float)((double)number / scale);
    return true;
}

/* Nothing, a number, and then "i" or not. */
static bool read_rotary(parser *p, const word_part *part)
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

static void read_packed(parser *p)
{
    const bool only_queries = *p->next == 'q', only_keys = *p->next == 'k';
    p->next += only_queries || only_keys;
    p->out->desc.attention.uses |=
        (only_keys ? 0 : MHA_USES_QUERY_OFFSETS) | (only_queries ? 0 : MHA_USES_KEY_OFFSETS);
}

static bool read_stage(parser *p, const word_part *part)
{
    if (*p->next < '0' || *p->next > '2')
        return refuse(p, p->next, "%s need 0, 1 or 2 after \"%s\"", part->name, part->letters);
    p->out->desc.attention.scores_stage = (mha_scores_stage)(*p->next++ - '0');
    return true;
}

/* What stands behind the part's letters, into the problem. */
static bool read_value(parser *p, const word_part *part)
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
    const word_part *part = &word_parts[index];
    const char *start = p->next;
    p->found[index] = start;
    p->next += strlen(part->letters);
    p->out->desc.attention.uses |= part->uses;
    p->out->desc.flags |= part->flags;
    return read_value(p, part);
}

static bool read_required(parser *p)
{
    for (size_t i = 0; i < WORD_PARTS; i++) {
        if (!word_parts[i].required || !word_fits(&word_parts[i], p->out))
            continue;
        if (!starts_with(p->next, word_parts[i].letters))
            return refuse(p, p->next, "here stands \"%s\" and a number, %s", word_parts[i].letters,
                          word_parts[i].name);
        if (!read_part(p, i))
            return false;
    }
    return true;
}

/* Where a part that says the same thing began, or NULL: itself, or a type of the same tensors. */
static const char *find_same(const parser *p, size_t index)
{
    for (size_t i = 0; i < WORD_PARTS; i++)
        if (p->found[i] && (i == index || (word_parts[i].type && word_parts[index].type &&
                                           word_parts[i].field == word_parts[index].field)))
            return p->found[i];
    return NULL;
}

static bool read_option(parser *p)
{
    for (size_t i = 0; i < WORD_PARTS; i++) {
        if (word_parts[i].required || !starts_with(p->next, word_parts[i].letters))
            continue;
        if (!word_fits(&word_parts[i], p->out))
            return refuse(p, p->next, "\"%s\", %s, is for %s only", word_parts[i].letters,
                          word_parts[i].name,
                          word_parts[i].place == IN_LAYER       ? "layers"
                          : word_parts[i].place == IN_ATTENTION ? "attentions"
                                                                : "attentions and layers");
        const char *const before = find_same(p, i);
        if (before)
            return refuse(p, p->next, "\"%s\", %s, is there already at character %td",
                          word_parts[i].letters, word_parts[i].name, before - p->word + 1);
        return read_part(p, i);
    }
    return refuse(p, p->next, "no option begins with \"%s\"", p->next);
}

/* Says where the diagonal lies, if there is one to say it of. */
static bool settle_diagonal(parser *p)
{
    const uint64_t followers = MHA_USES_WINDOW_LEFT | MHA_USES_WINDOW_RIGHT | MHA_USES_ALIBI;
    mha_attention_desc *desc = &p->out->desc.attention;
    for (size_t i = 0; i < WORD_PARTS; i++) {
        if (word_parts[i].kind != PART_DIAGONAL || !p->found[i])
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

static bool settle_cache(parser *p)
{
    for (size_t i = 0; i < WORD_PARTS; i++)
        if (p->found[i] && word_parts[i].needs_cache &&
            !(p->out->desc.attention.uses & MHA_USES_APPEND))
            return refuse(p, p->found[i],
                          "\"%s\", %s, is for a cache, and no \"+\" says that new keys join it",
                          word_parts[i].letters, word_parts[i].name);
    return true;
}

/* A batch has no more keys than there are. */
static bool check_lengths(parser *p)
{
    if (p->out->key_length <= p->out->desc.attention.key_len)
        return true;
    for (size_t i = 0; i < WORD_PARTS; i++) {
        if (word_parts[i].kind == PART_LENGTHS && p->found[i])
            return refuse(p, p->found[i], "the length of keys is above the key length, %zu",
                          p->out->desc.attention.key_len);
    }
    return false;
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
    if (starts_with(word, WORD_LAYER_PREFIX)) {
        out->is_layer = true;
        p.next += strlen(WORD_LAYER_PREFIX);
    } else if (starts_with(word, WORD_GEMM_PREFIX)) {
        out->is_gemm = true;
        p.next += strlen(WORD_GEMM_PREFIX);
    }
    bool ok = read_required(&p);
    while (ok && *p.next)
        ok = read_option(&p);
    ok = ok && settle_diagonal(&p) && settle_cache(&p) && check_lengths(&p);
    settle_biases(out);
    if (!ok)
        memset(out, 0, sizeof *out);
    return ok;
}
