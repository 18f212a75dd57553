/* Problem words are read here. */
#include "word_parser.h"

#include <string.h>

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool read_part(word_parser *p, size_t index)
{
    const word_part *part = &word_parts[index];
    const char *start = p->next;
    p->found[index] = start;
    p->next += strlen(part->letters);
    p->out->desc.attention.uses |= part->uses;
    p->out->cross_uses |= part->cross_uses;
    p->out->desc.flags |= part->flags;
    p->out->ffn.flags |= part->ffn_flags;
    p->out->gemm.flags |= part->gemm_flags;
    return word_read_value(p, part);
}

static bool read_required(word_parser *p)
{
    for (size_t i = 0; i < WORD_PARTS; i++) {
        if (!word_parts[i].required || !word_fits(&word_parts[i], p->out))
            continue;
        if (!starts_with(p->next, word_parts[i].letters))
            return word_refuse(p, p->next, "here stands \"%s\" and a number, %s",
                               word_parts[i].letters, word_parts[i].name);
        if (!read_part(p, i))
            return false;
    }
    return true;
}

/* Where a part that says the same thing began, or NULL: itself, or a type of the same tensors. */
static const char *find_same(const word_parser *p, size_t index)
{
    for (size_t i = 0; i < WORD_PARTS; i++)
        if (p->found[i] && (i == index || (word_parts[i].type && word_parts[index].type &&
                                           word_parts[i].field == word_parts[index].field)))
            return p->found[i];
    return NULL;
}

/* The option that begins here: one that the word's kind of problem has, else one of another kind,
 * or NULL. */
static const word_part *find_option(const word_parser *p)
{
    const word_part *other = NULL;
    for (size_t i = 0; i < WORD_PARTS; i++) {
        const word_part *part = &word_parts[i];
        if (part->required || !starts_with(p->next, part->letters))
            continue;
        if (word_fits(part, p->out))
            return part;
        other = other ? other : part;
    }
    return other;
}

static bool read_option(word_parser *p)
{
    const word_part *part = find_option(p);
    if (!part)
        return word_refuse(p, p->next, "no option begins with \"%s\"", p->next);
    if (!word_fits(part, p->out))
        return word_refuse(p, p->next, "\"%s\", %s, is for %s only", part->letters, part->name,
                           word_place_name(part));
    const size_t index = (size_t)(part - word_parts);
    const char *const before = find_same(p, index);
    if (before)
        return word_refuse(p, p->next, "\"%s\", %s, is there already at character %td",
                           part->letters, part->name, before - p->word + 1);
    return read_part(p, index);
}

/* Says where the diagonal lies, if there is one to say it of. */
static bool settle_diagonal(word_parser *p)
{
    const uint64_t followers = MHA_USES_WINDOW_LEFT | MHA_USES_WINDOW_RIGHT | MHA_USES_ALIBI;
    mha_attention_desc *desc = &p->out->desc.attention;
    for (size_t i = 0; i < WORD_PARTS; i++) {
        if (word_parts[i].kind != PART_DIAGONAL || !p->found[i])
            continue;
        if (desc->uses & MHA_USES_CAUSAL)
            return word_refuse(p, p->found[i], "with causal write \"cb\" instead");
        if (!(desc->uses & followers))
            return word_refuse(p, p->found[i], "there is neither \"wl\" nor \"wr\" nor \"A\"");
    }
    if (desc->uses & (followers | MHA_USES_CAUSAL) && desc->diagonal == MHA_DIAGONAL_NONE)
        desc->diagonal = MHA_TOP_LEFT;
    return true;
}

static bool settle_cache(word_parser *p)
{
    for (size_t i = 0; i < WORD_PARTS; i++)
        if (p->found[i] && word_parts[i].needs_cache &&
            !(p->out->desc.attention.uses & MHA_USES_APPEND))
            return word_refuse(
                p, p->found[i],
                "\"%s\", %s, is for a cache, and no \"+\" says that new keys join it",
                word_parts[i].letters, word_parts[i].name);
    return true;
}

/* A batch has no more keys than there are, nor a memory more rows. */
static bool check_lengths(word_parser *p)
{
    const size_t keys = p->out->desc.attention.key_len, rows = p->out->memory_len;
    for (size_t i = 0; i < WORD_PARTS; i++) {
        const bool is_memory = word_parts[i].cross_uses;
        const size_t most = is_memory ? rows : keys;
        if (word_parts[i].kind != PART_LENGTHS || !p->found[i] ||
            (is_memory ? p->out->memory_length : p->out->key_length) <= most)
            continue;
        return word_refuse(p, p->found[i], "%s is above the %s length, %zu", word_parts[i].name,
                           is_memory ? "memory" : "key", most);
    }
    return true;
}

/* "B" is a bias for each projection that there is. */
static void settle_biases(problem *out)
{
    if (out->desc.flags & MHA_LAYER_MERGED_OUTPUT)
        out->desc.flags &= ~MHA_LAYER_BIAS_OUTPUT;
    if (!(out->ffn.flags & MHA_FFN_GATE))
        out->ffn.flags &= ~MHA_FFN_BIAS_GATE;
}

/* The rows of a whole layer are its keys, and something lies between the projections of its
 * network. */
static void settle_block(problem *out)
{
    const bool is_block = out->kind == KIND_ENCODER || out->kind == KIND_DECODER;
    if (is_block || out->kind == KIND_MODEL)
        out->desc.attention.key_len = out->desc.attention.query_len;
    if (!is_block)
        out->ffn = (mha_ffn_desc){ 0 };
    else if (!out->ffn.activation)
        out->ffn.activation = WORD_FUNCTION;
}

/* The kind that the word begins with. */
static void read_kind(word_parser *p)
{
    for (int kind = KIND_ATTENTION + 1; kind < WORD_KINDS; kind++) {
        if (!starts_with(p->word, word_prefixes[kind]))
            continue;
        p->out->kind = (problem_kind)kind;
        p->next += strlen(word_prefixes[kind]);
    }
}

bool word_parse(const char *word, problem *out, char *error, size_t error_size)
{
    word_parser p = {
        .word = word, .next = word, .out = out, .error = error, .error_size = error_size
    };
    memset(out, 0, sizeof *out);
    read_kind(&p);
    bool ok = read_required(&p);
    while (ok && *p.next)
        ok = read_option(&p);
    settle_biases(out);
    settle_block(out);
    ok = ok && settle_diagonal(&p) && settle_cache(&p) && check_lengths(&p);
    if (!ok)
        memset(out, 0, sizeof *out);
    return ok;
}
