/* Reads a text character by character; each may become none, one or several, with a space where a
 * word must end. Nothing is allocated, so a line may have any length. */
#include "words.h"

#include "characters.h"

#include <string.h>
#include <utf8proc.h>

/* Neither is a character of a normalised text. */
enum {
    AT_END = -1,
    SPACE = ' '
};

words words_of(const char *text, size_t length, const words_options *options)
{
    return (words){ .options = *options, .at = text, .end = text + length };
}

/* The next character of the raw text, U+FFFD for a byte that belongs to none. */
static int32_t read_raw(words *self)
{
    int32_t code_point = AT_END;
    if (self->at == self->end)
        return AT_END;
    const utf8proc_ssize_t used =
        utf8proc_iterate((const utf8proc_uint8_t *)self->at, self->end - self->at, &code_point);
    self->at += used > 0 ? used : 1;
    return used > 0 ? code_point : 0xfffd;
}

static void push(words *self, int32_t code_point)
{
    self->ahead[self->num_ahead++] = code_point;
}

/* Only U+0130 becomes two characters; the dot is an accent where those are dropped. */
static void push_lower(words *self, int32_t code_point)
{
    if (!self->options.lower_case) {
        push(self, code_point);
    } else if (code_point == 0x130) {
        push(self, 'i');
        push(self, 0x307);
    } else {
        push(self, utf8proc_tolower(code_point));
    }
}

/* No character has more than 4 parts. Marks are not sorted as a normal form asks, since the marks
 * are what goes. */
static void push_parts(words *self, int32_t code_point)
{
    int32_t parts[4];
    int last_class = 0;
    utf8proc_ssize_t count =
        utf8proc_decompose_char(code_point, parts, 4, UTF8PROC_DECOMPOSE, &last_class);
    for (utf8proc_ssize_t i = 0; i < count; i++)
        if (character_kind_of(parts[i]) != CHARACTER_ACCENT)
            push_lower(self, parts[i]);
}

/* Makes normalised characters of raw ones until there is one, or the text ends. */
static void fill(words *self)
{
    self->num_ahead = self->first_ahead = 0;
    while (!self->num_ahead) {
        const int32_t code_point = read_raw(self);
        if (code_point == AT_END)
            return;
        const character_kind kind = character_kind_of(code_point);
        if (kind == CHARACTER_CONTROL)
            continue;
        const bool apart = kind == CHARACTER_CHINESE && self->options.separate_chinese;
        if (apart || kind == CHARACTER_SPACE)
            push(self, SPACE);
        if (kind == CHARACTER_SPACE)
            return;
        if (self->options.strip_accents)
            push_parts(self, code_point);
        else
            push_lower(self, code_point);
        if (apart)
            push(self, SPACE);
    }
}

/* The next normalised character, which stays there to be taken. */
static int32_t peek(words *self)
{
    if (self->first_ahead == self->num_ahead)
        fill(self);
    return self->num_ahead ? self->ahead[self->first_ahead] : AT_END;
}

static void append(word *out, size_t *characters, int32_t code_point)
{
    if (*characters == WORD_MAX_CHARACTERS) {
        out->is_too_long = true;
        return;
    }
    ++*characters;
    out->bytes +=
        (size_t)utf8proc_encode_char(code_point, (utf8proc_uint8_t *)out->text + out->bytes);
}

bool words_next(words *self, word *out)
{
    size_t characters = 0;
    out->bytes = 0;
    out->is_too_long = false;
    while (peek(self) == SPACE)
        self->first_ahead++;
    for (int32_t c = peek(self); c != AT_END && c != SPACE; c = peek(self)) {
        const bool is_mark = character_kind_of(c) == CHARACTER_PUNCTUATION;
        if (is_mark && characters)
            break;
        self->first_ahead++;
        append(out, &characters, c);
        if (is_mark)
            break;
    }
    return characters > 0;
}
