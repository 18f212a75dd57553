"""Of tests/tokenizer-check: the same lines to sentence-embedding and to tokenizers."""

import random
import subprocess
import sys
from pathlib import Path

from tokenizers import Tokenizer

MAX_TOKENS = 256  # sentence_bert_config.json of the model

# Words of a kind, for lines of one kind or of all.
PLAIN = "the cat sat on a warm windowsill quietly unaffable transformers tokenization".split()
KINDS = [
    PLAIN,
    "café naïve Ångström résumé ŽLUŤOUČKÝ coöperate İstanbul ıİiI DİYARBAKIR".split(),
    "ΣΊΣΥΦΟΣ ΟΔΟΣ ΑΣ σς ЁЖИК Їжак ẞß ŉ ǅ Ⅷ ℵ ſ ﬁ ﬂuﬃ".split(),
    "中文字 漢字かな交じり文 カタカナ 𠀀𪛖 豈更 ﾊﾝｶｸ （全角） Ｆｕｌｌ 𫝀𫠠𫤟𫤠".split(),
    "한국어 각 ᄀ\u1161\u11a8 한글 가나다라".split(),
    "😀 👩\u200d👩\u200d👧 🇩🇪 ❤\ufe0f 🏽 ☃ ™ ①".split(),
    "... !?!? -- #@$%^&* ~` “quoted” ‘x’ «y» ¿qué? … — 、。 〜 $5 a+b=c 1,000.5% ≠ ≮".split(),
    "[ ] ## [CLS] [SEP]x a[MASK]b [unk] [UNK] [PAD] [[CLS]] [CLS".split(),
    ["a" * 99, "b" * 100, "c" * 101, "d" * 200, "é" * 100, "e\u0301" * 101, "中" * 120],
    ["한" * 33, "한" * 34],
    ["e\u0301", "a\u0323\u0307", "\u0301", "\u0300\u0301abc", "z\u0351\u036b", "\u302e가"],
    "क्षि ที่ עִבְ العَرَبِيَّة".split(),
    ["a\u200bb", "a\u200db", "\ufeffbom", "soft\u00adhyphen", "\u2060", "\u200e", "a\ufffdb"],
    ["a\tb", "a\u00a0b", "\u2003", "\u3000", "\u2028", "\u0085", "\x0b", "\x0c", "\x1f", "a\0b"],
    ["\ue000", "a\uf8ffb", "\U000f0000", "\uffff", "\ufdd0", "\U0010ffff", "\ud7ff", "\u0378"],
    # Of other kinds in other versions of Unicode.
    ["\u061d", "a\u08d3b", "\u2e43", "\u2e5d", "\u1734", "\u166d", "\U000111c9", "\ua7cb"],
]


def random_word(source):
    ranges = [(0x20, 0x7F), (0xA0, 0x3000), (0x3000, 0xD800), (0xE000, 0x110000)]
    length = source.randint(1, 5)
    return "".join(chr(source.randrange(*source.choice(ranges))) for _ in range(length))


def random_line(source):
    """Of one kind, of several, or with words that no one has written."""
    kinds = source.choice([[source.choice(KINDS)], KINDS])
    invents = source.random() < 0.25
    words = []
    for _ in range(source.choice([0, 1, 2, 5, 10, 20, 60, 150, 400])):
        word = source.choice(source.choice(kinds))
        if invents and source.random() < 0.3:
            word = random_word(source)
        words.append(word.upper() if source.random() < 0.1 else word)
        words.append(source.choice(["", " ", " ", "  "]))
    return "".join(words).replace("\n", "").rstrip("\r")


def make_lines(every):
    source = random.Random(7)
    lines = [random_line(source) for _ in range(1000)]
    surrogates_and_ends = {*range(0xD800, 0xE000), ord("\n"), ord("\r")}
    # Another part of them in each block of `every`, so that all columns of Unicode's tables have one.
    characters = (c for c in range(0x110000) if (c + c // every) % every == 0)
    # Within a word that is in the vocabulary, then alone.
    lines += [f"un{chr(c)}sed {chr(c)}." for c in characters if c not in surrogates_and_ends]
    return lines


def main(every, program, model):
    lines = make_lines(int(every))
    text = "".join(line + "\n" for line in lines).encode()
    command = [program, "--format", "ids", model]
    ours = subprocess.run(command, input=text, check=True, capture_output=True).stdout
    ours = ours.decode().split("\n")[:-1]
    theirs = Tokenizer.from_file(str(Path(model) / "tokenizer.json"))
    theirs.no_padding()
    theirs.enable_truncation(MAX_TOKENS)
    if len(ours) != len(lines):
        sys.exit(f"tokenizer-check: {len(lines)} lines went in, {len(ours)} came out")
    wrong = 0
    for line, mine in zip(lines, ours):
        wanted = " ".join(map(str, theirs.encode(line).ids))
        if mine != wanted:
            wrong += 1
            if wrong <= 10:
                print(f"{line[:80]!r}\n  {wanted[:100]}, but here\n  {mine[:100]}")
    print(f"tokenizer-check: {len(lines)} lines, {wrong} with other tokens")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
