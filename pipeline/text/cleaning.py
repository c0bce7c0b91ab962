"""Writes training text as shards, without useless pairs: blank or overlong sides, sides of very different length.

    write_corpus(context, ("en", "de"), parts_of("train.en", source, target, 100_000), CleaningSettings())

WMT14's archives need this; the paper states no rule (§5.1). Lines are `normalised`. Evaluation sets are not cleaned,
since scores need every line.

Lengths are counted in words, or in characters if either language is written without spaces
(`pipeline.text.languages`).
"""

import hashlib
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args

from pipeline.artifacts import Corpus
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.parts import PARTS, written
from pipeline.records import CorpusRecord
from pipeline.settings import CleaningSettings, Suspicion
from pipeline.store.folders import temporary_folder
from pipeline.text.aligned import Part
from pipeline.text.languages import has_word_spaces
from pipeline.text.lines import INVALID, TOO_LONG, read_pairs, write_pairs
from pipeline.text.normalisation import normalised

if TYPE_CHECKING:  # slow to import, and of no use to most tasks
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

REASONS = ("blank", TOO_LONG, "ratio", INVALID)
SUSPICIONS = get_args(Suspicion)
FOUND = "found "
"""Prefix of the counts of suspicious pairs, dropped or not."""
NUMBER = re.compile(r"\d+")
_OTHER_DIGITS = b"\xd9\xdb\xdf\xe0\xe1\xea\xef\xf0"  # their first bytes
_DIGITS = bytes(i if i in b"0123456789" else b" ?"[i in _OTHER_DIGITS] for i in range(256))
"""Replaces all bytes of a line but digits: by ? if digits of other scripts begin so, and else by spaces."""
WITH_NUMBERS, SHIFTED_PAIRS, SHIFTED_SHARE = "with numbers", 100, 0.5
"""A warning is due from this many pairs with numbers and this share of them with others on either side."""
CHARACTERS_PER_WORD = 5
"""Multiplies `max_words` where lengths are counted in characters."""


def write_corpus(
    context: Context,
    languages: tuple[str, str],
    parts: Iterable[Part],
    settings: CleaningSettings,
    *,
    expected: int | None = None,
    symbols: Iterable[str] | None = None,
    report: Mapping[str, Any] = MappingProxyType({}),
) -> Corpus:
    """Cleans the pairs of each part and writes them as a shard, with one task per part (`pipeline.parts`).

    `expected` is the number of pairs, if known, for progress. Linearised trees have `symbols`, to which those of the
    text are added. The corpus's report is `report`, which is read at the end, and {"read", "kept", "dropped": {reason:
    pairs}, "suspicious": {suspicion: pairs, dropped or not}, "normalised": lines changed within, "collections": {name:
    {"read", "kept", "dropped", "suspicious"}}}. Raises UserError if no pair is kept.
    """
    corpus, in_words = Corpus(context.folder), all(map(has_word_spaces, languages))

    def calls() -> Iterator[tuple[list[str], tuple[Any, ...]]]:
        for number, part in enumerate(parts):
            names = [corpus.shard_path(number, language).name for language in languages]
            yield [*names, f"{PARTS}/{number:05d}.hashes"], (part, settings, in_words, symbols is not None)

    shards, collections, known = list[int](), list[str](), set(symbols or ())
    counts_of, read = dict[str, Counter[str]](), 0
    for done in written(context, write_shard, calls()):
        counts = Counter(done["counts"])
        shards.append(counts["kept"])
        collections.append(done["collection"])
        counts_of.setdefault(done["collection"], Counter()).update(counts)
        known.update(done["symbols"])
        read += counts["read"]
        context.progress(read, max(expected or 0, read), "pairs")
    droppings = []
    for number, repeated in enumerate(_repeated(context.folder, len(shards)) if shards else ()):
        pairs, counts = int(repeated.sum()), counts_of[collections[number]]
        counts[f"{FOUND}duplicate"] += pairs
        if pairs and "duplicate" in settings.drop:
            counts += Counter(duplicate=pairs, kept=-pairs)
            shards[number] -= pairs
            droppings.append(([corpus.shard_path(number, language) for language in languages], repeated))
    for _ in context.map(drop_rows, droppings):
        context.progress(read, read, "pairs")
    total = sum(counts_of.values(), Counter[str]())
    all_counts = _report(total, settings)
    if not total["kept"]:
        dropped = ", ".join(f"{pairs} {reason}" for reason, pairs in all_counts["dropped"].items())
        raise UserError(
            f"cleaning drops all {total['read']:,} training pairs ({dropped}); "
            "check that the two sides are the right files, or raise max_words or max_ratio"
        )
    for name, counts in counts_of.items():
        differing, having = counts[f"{FOUND}numbers"], counts[WITH_NUMBERS]
        if having >= SHIFTED_PAIRS and differing >= SHIFTED_SHARE * having:
            share = f"{differing / having:.0%} of the {having:,} pairs with numbers"
            log.warning("%s: the sides' numbers differ in %s; check that the lines are not shifted", name, share)
    of_collections = {name: _report(counts, settings) for name, counts in counts_of.items()}
    all_counts |= {"normalised": total["normalised"], "collections": of_collections, **report}
    fields = {"source": languages[0], "target": languages[1], "shards": shards, "collections": collections}
    return corpus.write(CorpusRecord(**fields, symbols=sorted(known), report=all_counts))


def write_shard(
    paths: Sequence[Path], part: Part, settings: CleaningSettings, in_words: bool, of_trees: bool
) -> dict[str, Any]:
    """Writes a part's cleaned pairs and 64-bit hashes to three files; returns its collection, counts and symbols."""
    counts, symbols, hashes = Counter(dict(part.dropped)), set[str](), bytearray()

    def kept() -> Iterator[tuple[str, str]]:
        for raw_source, raw_target in part.pairs():
            source, target = normalised(raw_source), normalised(raw_target)
            if changed := (source != raw_source.strip()) + (target != raw_target.strip()):
                counts["normalised"] += changed
            if of_trees:
                symbols.update(target.split(" "))
            reason = reason_to_drop(source, target, settings, in_words=in_words)
            in_bytes = source.encode(), target.encode()
            if not (reason or of_trees) and (suspicion := _suspicion(*in_bytes, counts)):
                counts[FOUND + suspicion] += 1
                reason = suspicion if suspicion in settings.drop else None
            if reason:
                counts[reason] += 1
            else:
                hashes.extend(hashlib.blake2b(b"\n".join(in_bytes), digest_size=8).digest())
                yield source, target

    counts["kept"] = write_pairs(paths[0], paths[1], kept())
    counts["read"] = sum(counts[reason] for reason in {"kept", *REASONS, *settings.drop})
    paths[2].write_bytes(hashes)
    return {"collection": part.collection, "counts": counts, "symbols": sorted(symbols - {""})}


def reason_to_drop(source: str, target: str, settings: CleaningSettings, *, in_words: bool = True) -> str | None:
    """Returns the first reason to drop a training pair (one of REASONS), or None.

    Lengths are counted in words, or without `in_words` in characters other than spaces.
    """
    words = source.split(), target.split()
    lengths = map(len, words) if in_words else (sum(map(len, side)) for side in words)
    shorter, longer = sorted(lengths)
    if not shorter:
        return "blank"
    if longer > settings.max_words * (1 if in_words else CHARACTERS_PER_WORD):
        return TOO_LONG
    return "ratio" if longer / shorter > settings.max_ratio else None


def _suspicion(source: bytes, target: bytes, counts: Counter[str]) -> Suspicion | None:
    """Returns what is suspicious about a pair of lines in UTF-8, and counts it if it has numbers."""
    if source == target:
        return "copy"
    one, other = _numbers(source), _numbers(target)
    if one or other:
        counts[WITH_NUMBERS] += 1
    return "numbers" if one != other else None


def _numbers(line: bytes) -> list[int]:
    """Returns the sequences of digits of any script, by the first digits of each, sorted."""
    found: Sequence[bytes | str] = (digits := line.translate(_DIGITS)).split()
    if b"?" in digits:
        found = NUMBER.findall(line.decode())
    return sorted(int(number[:18]) for number in found) if found else []


def _repeated(folder: Path, shards: int) -> "Sequence[NDArray[Any]]":
    """Returns for each shard which of its pairs are in an earlier line of the corpus; takes some 32 bytes a pair."""
    import numpy as np

    hashes = [np.fromfile(folder / PARTS / f"{number:05d}.hashes", np.uint64) for number in range(shards)]
    repeated = np.ones(sum(map(len, hashes)), np.bool_)
    repeated[np.unique(np.concatenate(hashes), return_index=True)[1]] = False
    return np.split(repeated, np.cumsum([len(each) for each in hashes])[:-1])


def drop_rows(paths: Sequence[Path], dropped: "NDArray[Any]") -> None:
    """Deletes the pairs marked as `dropped` from a shard's source and target file."""
    with temporary_folder(paths[0].parent) as aside:
        pairs = zip(read_pairs(paths[0], paths[1]), dropped, strict=True)
        kept = (pair for pair, is_dropped in pairs if not is_dropped)
        write_pairs(aside / paths[0].name, aside / paths[1].name, kept)
        for path in paths:
            os.replace(aside / path.name, path)


def _report(counts: Counter[str], settings: CleaningSettings) -> dict[str, Any]:
    """Returns the number of pairs read, kept, dropped by reason, and suspicious."""
    dropped = {reason: counts[reason] for reason in (*REASONS, *settings.drop)}
    suspicious = {suspicion: counts[FOUND + suspicion] for suspicion in SUSPICIONS}
    return {"read": counts["read"], "kept": counts["kept"], "dropped": dropped, "suspicious": suspicious}
