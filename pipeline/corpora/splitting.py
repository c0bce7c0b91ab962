"""Splits text into training text, dev set and test set by its source sentences, which may have several translations.

pairs = split(Path("own"), (Path("text.en"), Path("text.de")), ("en", "de"), {"test": 1000, "dev": 1000})
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

from pipeline.errors import UserError
from pipeline.text.lines import is_utf8, read_pairs, write_pairs
from pipeline.text.normalisation import normalised

DESCRIPTION = """\
source = "{0}"
target = "{1}"
train = {{source = "train.{0}", target = "train.{1}"}}
dev = {{source = "dev.{0}", target = "dev.{1}"}}
test.held-out = {{source = "test.{0}", target = "test.{1}"}}
"""


def hash_of(sentence: str) -> int:
    """Returns a 64-bit hash of a sentence as it is normalised, the same in every process."""
    return int.from_bytes(blake2b(normalised(sentence).encode(errors="surrogateescape"), digest_size=8).digest(), "big")


def languages_of(text: Sequence[Path], source: str | None, target: str | None) -> tuple[str, str]:
    """Returns the languages of one or two files, by default their extensions. Raises UserError if one is unknown."""
    endings = [Path(re.sub(r"(\.(gz|bz2|xz|txt|tsv))+$", "", path.name)).suffix[1:] for path in text]
    languages = source or endings[0], target or endings[-1]
    if len(text) > 2 or not all(languages):
        raise UserError("name two files, text.en text.de, or one and its languages, --source en --target de")
    return languages


def split(folder: Path, sides: tuple[Path, Path], languages: tuple[str, str], sizes: Mapping[str, int]) -> str:
    """Writes `text.toml` and its files, with lines as they are; returns a line with the number of pairs in each split.

    Reads the text twice (`read_pairs`). Pairs with one source stay together, so a set may be smaller than in `sizes`.
    A set does not depend on those after it. Bad bytes go to training text. Raises UserError if the text is too small.
    """
    split_of, sets = _held_out(sides, sizes), {name: list[tuple[str, str]]() for name in sizes}

    def training() -> Iterator[tuple[str, str]]:
        for pair in read_pairs(*sides, "surrogateescape"):
            if is_utf8("".join(pair)) and (name := split_of.get(hash_of(pair[0]))):
                sets[name].append(pair)
            else:
                yield pair

    counts = {}
    for name, pairs in {"train": training(), **sets}.items():
        counts[name] = write_pairs(folder / f"{name}.{languages[0]}", folder / f"{name}.{languages[1]}", pairs)
    found = ", ".join(f"{count:,} pairs for {name}" for name, count in counts.items())
    if not all(counts.values()):
        raise UserError(f"{sides[0]} has too few different lines of text: {found}; lower --dev and --test")
    (folder / "text.toml").write_text(DESCRIPTION.format(*languages), encoding="utf-8")
    return found + "; smaller --dev and --test leave more for train" * (2 * counts["train"] < sum(counts.values()))


def _held_out(sides: tuple[Path, Path], sizes: Mapping[str, int]) -> dict[int, str]:
    """Maps hashes of sources to their set: those that are smallest and whose pairs fit in it."""
    room, counts, split_of = sum(sizes.values()), Counter[int](), dict[int, str]()
    for source, target in read_pairs(*sides, "surrogateescape"):
        if is_utf8(source + target):
            counts[hash_of(source)] += 1
        if len(counts) > 2 * room:  # bounds memory; a hash that comes back is again among the largest
            counts = Counter({each: counts[each] for each in sorted(counts)[:room]})
    for name, size in sizes.items():
        for hashed in sorted(counts)[:room]:
            if hashed not in split_of and counts[hashed] <= size:
                split_of[hashed] = name
                size -= counts[hashed]
    return split_of
