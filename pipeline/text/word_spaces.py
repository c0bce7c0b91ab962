"""Whether spaces separate the words of a text, decided by its characters.

    has_word_spaces(["Two dogs run.", "A man sleeps."])    # True
    has_word_spaces(["两只狗在跑。"])                       # False

Chinese, Japanese, Thai, Lao, Khmer, Burmese and Tibetan are written without. Their lengths are counted in characters
(`pipeline.text.cleaning`), their vocabulary is learned from sampled lines (`pipeline.text.vocabulary`), and paper BLEU
is not defined for them (`pipeline.evaluation.scoring`).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus, Shard
from pipeline.store.scratch import Scratch
from pipeline.text.lines import read_lines

SAMPLED_LINES = 200
"""Lines examined per file or shard."""
CHARACTERS_PER_SPACE = 6
"""Text in these scripts with at least one space per so many characters has been split into words."""
_WITHOUT_SPACES = re.compile(
    "["
    "\u0e00-\u0fff"  # Thai, Lao, Tibetan
    "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17ff\u19e0-\u19ff"  # Khmer
    "\u1950-\u19df\u1a20-\u1aaf"  # Tai
    "\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u3041-\u312f\u31a0-\u31ff\uff66-\uff9f"  # Hiragana, Katakana, Bopomofo
    "]+"
)


def has_word_spaces(lines: Iterable[str]) -> bool:
    """Returns False if most letters belong to scripts without word spaces and the text has few spaces."""
    return _are_words(_counted(lines))


def _counted(lines: Iterable[str]) -> Counter[str]:
    """Counts the letters of scripts without spaces, the other letters, and the spaces."""
    unspaced = others = spaces = 0
    for line in lines:
        length = sum(map(len, _WITHOUT_SPACES.findall(line)))
        others += sum(map(str.isalpha, line)) if not length else sum(map(str.isalpha, _WITHOUT_SPACES.sub("", line)))
        unspaced += length
        spaces += len(line.split()) - 1
    return Counter(unspaced=unspaced, others=others, spaces=spaces)


def _are_words(counts: Counter[str]) -> bool:
    letters = counts["unspaced"] + counts["others"]
    return counts["unspaced"] <= counts["others"] or counts["spaces"] * CHARACTERS_PER_SPACE >= letters


def have_word_spaces(paths: Iterable[Path]) -> bool:
    """Applies `has_word_spaces` to the first lines of the files, in any encoding. Raises UserError."""
    return has_word_spaces(chain.from_iterable(map(_first_lines, paths)))


def sides_with_word_spaces(context: Context, corpus: Corpus) -> tuple[bool, bool]:
    """Applies `has_word_spaces` to the first lines of both sides' shards: (source, target).

    Makes one call of `context.map` per shard.
    """
    counted = [*context.map(count_spaces, [(context.scratch, shard) for shard in corpus.shards])]
    source, target = (_are_words(sum(side, Counter[str]())) for side in zip(*counted, strict=True))
    return source, target


def count_spaces(scratch: Scratch, shard: Shard) -> tuple[Counter[str], Counter[str]]:
    """Counts letters and spaces in the first lines of both sides."""
    here = shard.on_this_node(scratch)
    return _counted(_first_lines(here.source)), _counted(_first_lines(here.target))


def _first_lines(path: Path) -> Iterator[str]:
    return islice(read_lines(path, "surrogateescape"), SAMPLED_LINES)
