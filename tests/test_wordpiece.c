/* BERT's tokenizer. What is expected comes from Hugging Face's tokenizers 0.23 with the same
 * vocabulary; tests/tokenizer-check compares a real one with many more lines. */
#include "scratch.h"
#include "wordpiece.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(wordpiece, .init = scratch_make, .fini = scratch_remove);

static const char vocabulary[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\nsat\nun\n##aff\n##able\n##s\na\n##a\ncafe\n"
    "istanbul\ni\n##i\nss\n\317\203\n##\317\203\n\316\277\316\264\316\277\n##\317\202\n!\n?\n.\n"
    "\342\200\224\n\342\200\246\n\342\200\234\n\342\200\235\n$\n^\n=\n\344\270\255\n\346\226\207\n"
    "\350\261\210\n\341\204\222\n##\341\205\241\n##\341\206\253\nfi\n\357\254\201\n\342\230\203\n"
    "ab\ncaf\303\251\ncafe\314\201\nCAT\nThe\nI\ni\314\207\n\304\260\n";

static const words_options uncased = { true, true, true };

static wordpiece *open_vocabulary(const words_options *options)
{
    char error[200] = "";
    scratch_write("vocab.txt", vocabulary, sizeof vocabulary - 1);
    wordpiece *const self = wordpiece_open(scratch_path("vocab.txt"), options, error, sizeof error);
    cr_assert(self, "%s", error);
    return self;
}

/* The tokens, with spaces between them, and asserts that nothing was cut. */
static const char *tokens_of(const wordpiece *self, const char *text, size_t length)
{
    static char line[4096];
    int32_t ids[256];
    bool is_cut = true;
    size_t used = 0;
    const size_t count = wordpiece_encode(self, text, length, ids, 256, &is_cut);
    cr_assert(!is_cut);
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, i ? " %s" : "%s",
                                 wordpiece_token(self, ids[i]));
    return line;
}

typedef struct example {
    const char *text, *tokens; /* without [CLS] and [SEP] */
} example;

static void check(const words_options *options, const example *examples, size_t count)
{
    wordpiece *const self = open_vocabulary(options);
    for (size_t i = 0; i < count; i++) {
        char wanted[256];
        snprintf(wanted, sizeof wanted, *examples[i].tokens ? "[CLS] %s [SEP]" : "[CLS]%s [SEP]",
                 examples[i].tokens);
        cr_expect_str_eq(tokens_of(self, examples[i].text, strlen(examples[i].text)), wanted,
                         "example %zu, \"%s\"", i, examples[i].text);
    }
    wordpiece_close(self);
}

#define CHECK(options, examples) check(options, examples, sizeof(examples) / sizeof(examples)[0])

Test(wordpiece, words_and_pieces)
{
    static const example examples[] = {
        { "", "" },
        { "  \t ", "" },
        { "The cat sat", "the cat sat" },
        { "unaffable unaffables", "un ##aff ##able un ##aff ##able ##s" },
        { "unaffablez cat", "[UNK] cat" },
        { "un unaff aff", "un un ##aff [UNK]" },
        { "abs", "ab ##s" },
    };
    CHECK(&uncased, examples);
}

Test(wordpiece, case_and_accents)
{
    static const example examples[] = {
        { "Caf\303\251 CAFE\314\201", "cafe cafe" },
        { "\314\201 cat\314\201\314\200s", "cat ##s" },
        { "\304\260stanbul", "istanbul" },
        { "SS \303\237", "ss [UNK]" },
        /* The last sigma of a word is only another letter where it is written so. */
        { "\316\237\316\224\316\237\316\243 \316\237\316\224\316\237\317\202",
          "\316\277\316\264\316\277 ##\317\203 \316\277\316\264\316\277 ##\317\202" },
        { "\357\254\201 fi", "\357\254\201 fi" },
        { "\355\225\234", "\341\204\222 ##\341\205\241 ##\341\206\253" }, /* a Hangul syllable */
    };
    CHECK(&uncased, examples);
}

Test(wordpiece, punctuation)
{
    static const example examples[] = {
        { "cat!?...the", "cat ! ? . . . the" },
        { "a$a^a=a", "a $ a ^ a = a" },
        { "a\342\230\203a \342\230\203", "[UNK] \342\230\203" },
        { "\342\200\234cat\342\200\235\342\200\224the\342\200\246",
          "\342\200\234 cat \342\200\235 \342\200\224 the \342\200\246" },
        { "\342\211\240", "=" }, /* "not equal" is "=" and an accent */
    };
    CHECK(&uncased, examples);
}

Test(wordpiece, chinese)
{
    static const example examples[] = {
        { "\344\270\255\346\226\207cat\346\226\207", "\344\270\255 \346\226\207 cat \346\226\207" },
        { "\357\244\200", "\350\261\210" }, /* U+F900 is U+8C48 */
    };
    CHECK(&uncased, examples);
}

Test(wordpiece, spaces_and_controls)
{
    static const example examples[] = {
        { "cat\302\240the\343\200\200a\342\200\250cat", "cat the a cat" },
        { "cat\tthe\rsat", "cat the sat" },
        { "c\001a\342\200\213t \357\273\277cat\302\255 the\302\205cat", "cat cat [UNK]" },
        { "c\356\200\200at a\357\277\275b", "cat ab" },
    };
    CHECK(&uncased, examples);
    wordpiece *const self = open_vocabulary(&uncased);
    cr_assert_str_eq(tokens_of(self, "c\0at", 4), "[CLS] cat [SEP]");
    wordpiece_close(self);
}

/* The tokenizers' Unicode is older than utf8proc's. */
Test(wordpiece, characters_as_of_unicode_8)
{
    static const example examples[] = {
        { "cat\340\243\223 c\314\200at", "[UNK] cat" }, /* U+08D3, a mark since 9.0 */
        { "cat\341\234\264", "cat" },                   /* U+1734, no such mark any more */
        { "cat\341\231\255the", "cat [UNK] the" },      /* U+166D, no punctuation any more */
        { "a\315\270 a\357\277\277a cat\360\237\230\200 the", "[UNK] [UNK] [UNK] the" },
    };
    CHECK(&uncased, examples);
}

Test(wordpiece, special_tokens_in_the_text)
{
    static const example examples[] = {
        { "cat[SEP]the [MASK][CLS]", "cat [SEP] the [MASK] [CLS]" },
        { "[sep]", "[UNK] [UNK] [UNK]" },
        { "[[SEP]]", "[UNK] [SEP] [UNK]" },
        { "[", "[UNK]" },
    };
    CHECK(&uncased, examples);
}

Test(wordpiece, as_it_is_written)
{
    static const words_options cased = { false, false, true };
    static const example examples[] = {
        { "The CAT the", "The CAT the" },
        { "caf\303\251 cafe\314\201", "caf\303\251 cafe\314\201" },
        { "\304\260 I", "\304\260 I" },
    };
    CHECK(&cased, examples);
}

Test(wordpiece, lower_case_with_accents)
{
    static const words_options accented = { true, false, false };
    static const example examples[] = {
        { "CAF\303\211 CAFE\314\201", "caf\303\251 cafe\314\201" },
        { "\304\260", "i\314\207" },
        { "\344\270\255\346\226\207 \344\270\255", "[UNK] \344\270\255" },
    };
    CHECK(&accented, examples);
}

/* 100 characters are a word, 101 are none; what is dropped does not count. */
Test(wordpiece, long_words)
{
    char text[300], pieces[600] = "[CLS] a";
    wordpiece *const self = open_vocabulary(&uncased);
    memset(text, 'a', sizeof text);
    cr_assert_str_eq(tokens_of(self, text, 101), "[CLS] [UNK] [SEP]");
    cr_assert_str_eq(tokens_of(self, text, 300), "[CLS] [UNK] [SEP]");
    for (int i = 1; i < 100; i++)
        strcat(pieces, " ##a");
    strcat(pieces, " [SEP]");
    cr_assert_str_eq(tokens_of(self, text, 100), pieces);
    for (int i = 0; i < 100; i++)
        memcpy(text + 3 * i, "a\314\201", 3);
    cr_assert_str_eq(tokens_of(self, text, 300), pieces);
    wordpiece_close(self);
}

/* Bytes that are not UTF-8 stand for U+FFFD, which is dropped; nothing behind the text is read. */
Test(wordpiece, bytes_that_are_not_text)
{
    static const char *const texts[] = {
        "ca\377t",
        "\200cat",
        "cat\303",
        "c\300\200at",
        "cat\360",
        "cat\360\237",
        "cat\360\237\230",
        "ca\355\240\200t", /* half a pair */
        "ca\364\220\200\200t",
    };
    wordpiece *const self = open_vocabulary(&uncased);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char alone[16];
        const size_t length = strlen(texts[i]);
        memset(alone, 0x80, sizeof alone); /* would go on with a character that is cut off */
        memcpy(alone, texts[i], length);
        cr_expect_str_eq(tokens_of(self, alone, length), "[CLS] cat [SEP]", "text %zu", i);
    }
    wordpiece_close(self);
}

Test(wordpiece, cut)
{
    int32_t ids[6] = { -1, -1, -1, -1, -1, -1 };
    bool is_cut = false;
    wordpiece *const self = open_vocabulary(&uncased);
    cr_assert_eq(wordpiece_encode(self, "unaffables", 10, ids, 6, &is_cut), 6);
    cr_assert(!is_cut);
    cr_assert_eq(wordpiece_encode(self, "unaffables", 10, ids, 5, &is_cut), 5);
    cr_assert(is_cut);
    cr_assert_str_eq(wordpiece_token(self, ids[3]), "##able");
    cr_assert_str_eq(wordpiece_token(self, ids[4]), "[SEP]");
    cr_assert_eq(wordpiece_encode(self, "", 0, ids, 2, &is_cut), 2);
    cr_assert(!is_cut);
    cr_assert_eq(wordpiece_encode(self, "[SEP]", 5, ids, 2, &is_cut), 2);
    cr_assert(is_cut);
    wordpiece_close(self);
}

Test(wordpiece, vocabularies)
{
    static const struct {
        const char *text, *says; /* NULL: it is a good one */
    } files[] = {
        { "[UNK]\r\n[CLS]\r\n[SEP]\r\n", NULL },
        { "[SEP]\n\n\n[CLS]\n[UNK]", NULL }, /* an empty token has its id and is never met */
        { "", "it is empty" },
        { "[UNK]\n[CLS]\nsep\n", "it has no token [SEP]" },
        { "cat\n[UNK]\n[CLS]\n[SEP]\ncat\n", "its lines" },
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char error[200] = "";
        scratch_write("vocab.txt", files[i].text, strlen(files[i].text));
        wordpiece *const self =
            wordpiece_open(scratch_path("vocab.txt"), &uncased, error, sizeof error);
        cr_expect_eq(!self, files[i].says != NULL, "file %zu: %s", i, error);
        cr_expect(!files[i].says || strstr(error, files[i].says), "file %zu: %s", i, error);
        wordpiece_close(self);
    }
    char error[200] = "";
    scratch_write("vocab.txt", "[UNK]\n\0\n", 8);
    cr_assert(!wordpiece_open(scratch_path("vocab.txt"), &uncased, error, sizeof error));
    cr_assert_str_eq(error, "it is not text");
    cr_assert(!wordpiece_open(scratch_path("none.txt"), &uncased, error, sizeof error));
    cr_assert_str_eq(error, "No such file or directory");
}
