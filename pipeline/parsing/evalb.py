"""Bracketing scores identical to EVALB's (Sekine and Collins, version 20080701): Table 4's F1.

    scores = score_trees(Path("gold.trees"), Path("parsed.trees"))
    scores.total.f1, scores.total_short.f1    # over all sentences, and those of at most 40 words

Tree i of one file is scored against tree i of the other. A constituent matches if the other tree has one with the same
label over the same words, after punctuation is removed. Parameters are COLLINS.prm's, for the Penn Treebank. Malformed
lines are counted like EVALB's; its limits on line length are lifted. Trees over several lines, which EVALB cannot read,
are first cleaned like a treebank's.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import accumulate, compress
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.errors import UserError
from pipeline.parsing.trees import FUNCTION, TRACE_TAG, bracketed, cleaned, trees_in
from pipeline.text.lines import read_lines

_ELEMENT = re.compile(
    r"\((?P<tag>[^()\s]*)\s+(?P<word>[^()\s]*)\)|\((?P<label>[^()\s]*)|(?P<closing>\))|(?P<text>[^()\s]+)", re.ASCII
)
"""A tagged word, an opening bracket with its label, a closing bracket, or text outside brackets."""
Span = tuple[str, int, int]
"""A constituent's label, first word and end (exclusive)."""
TITLES: tuple[str, ...] = ("Number of sentence", "Number of Error sentence", "Number of Skip  sentence")
TITLES += ("Number of Valid sentence", "Bracketing Recall", "Bracketing Precision", "Bracketing FMeasure")
TITLES += ("Complete match", "Average crossing", "No crossing", "2 or less crossing", "Tagging accuracy")
"""EVALB's titles of the fields of `Total`."""
MAX_ERRORS = 10
"""Like EVALB, tolerates one error more and ends scoring at the next."""
SHORT_WORDS = 40
"""Maximum length of the sentences in the second summary, in words."""
DELETED = frozenset(["TOP", TRACE_TAG, ",", ":", "``", "''", "."])
"""Words with these tags, and brackets with these labels, are ignored."""
SAME_LABELS = {"ADVP", "PRT"}
"""Labels or tags that are considered equal."""


class Status(IntEnum):
    """Status of a sentence, with EVALB's numbers."""

    VALID = 0
    ERROR = 1
    SKIPPED = 2
    """The test tree has no scored word."""


class SentenceScore(NamedTuple):
    """Scores of one pair of lines; 0 where an error or a missing tree prevented counting."""

    line: int
    length: int
    """Words of the gold tree, punctuation included."""
    status: Status
    matched: int = 0
    gold_brackets: int = 0
    test_brackets: int = 0
    crossing: int = 0
    """Test brackets that overlap a gold bracket without either containing the other."""
    words: int = 0
    """Scored words, the same in both trees."""
    correct_tags: int = 0


class Total(NamedTuple):
    """EVALB's summary over sentences; sentences with an error and skipped ones are only counted.

    All values except sentence counts and `average_crossing` are in percent, 0 if undefined.
    """

    sentences: int
    errors: int
    skipped: int
    valid: int
    """Number of scored sentences."""
    recall: float
    """Share of gold brackets matched."""
    precision: float
    """Share of test brackets matched."""
    f1: float
    """Harmonic mean of precision and recall."""
    complete_match: float
    """Share of sentences in which all brackets match."""
    average_crossing: float
    """Crossing brackets per sentence."""
    no_crossing: float
    two_or_less_crossing: float
    tagging_accuracy: float
    """Share of words with the gold tag."""

    @classmethod
    def of(cls, sentences: Sequence[SentenceScore]) -> "Total":
        """Sums the counts, then divides."""
        status = [sentence.status for sentence in sentences]
        valid = [sentence for sentence in sentences if sentence.status is Status.VALID]
        matched = sum(s.matched for s in valid)
        recall = _percent(matched, sum(s.gold_brackets for s in valid))
        precision = _percent(matched, sum(s.test_brackets for s in valid))
        return cls(
            sentences=len(sentences),
            errors=status.count(Status.ERROR),
            skipped=status.count(Status.SKIPPED),
            valid=len(valid),
            recall=recall,
            precision=precision,
            f1=2 * precision * recall / (precision + recall) if matched else 0.0,
            complete_match=_percent(sum(s.matched == s.gold_brackets == s.test_brackets for s in valid), len(valid)),
            average_crossing=sum(s.crossing for s in valid) / max(len(valid), 1),
            no_crossing=_percent(sum(s.crossing == 0 for s in valid), len(valid)),
            two_or_less_crossing=_percent(sum(s.crossing <= 2 for s in valid), len(valid)),
            tagging_accuracy=_percent(sum(s.correct_tags for s in valid), sum(s.words for s in valid)),
        )

    def lines(self) -> Iterator[str]:
        """Yields EVALB's summary, one value a line."""
        for title, figure in zip(TITLES, self, strict=True):
            yield f"{title:25} = {figure:6{'d' if isinstance(figure, int) else '.2f'}}"

    def rounded(self) -> dict[str, float]:
        """Returns the values rounded to two digits like EVALB's."""
        return {name: round(figure, 2) for name, figure in self._asdict().items()}


class BracketingScores(NamedTuple):
    """The scores of a file of trees."""

    sentences: Sequence[SentenceScore]
    total: Total
    total_short: Total
    """The same for sentences of at most SHORT_WORDS words."""
    messages: Sequence[str]
    """EVALB's messages about malformed or mismatched lines: "line : message"."""

    def summary(self) -> Iterator[str]:
        """Yields the lines of EVALB's summary."""
        yield from ("=== Summary ===", "", "-- All --", *self.total.lines())
        yield from ("", f"-- len<={SHORT_WORDS} --", *self.total_short.lines())


def score_trees(gold: Path, test: Path) -> BracketingScores:
    """Scores the trees of `test` against those of `gold`, one a line or over several, in plain or gzip files.

    Raises UserError if a file cannot be read, a line has text outside brackets, the files have different numbers of
    trees, there are more errors than EVALB tolerates, or no sentence can be scored.
    """
    sentences: list[SentenceScore] = []
    messages: list[str] = []

    def report(problem: str) -> None:
        messages.append(f"{number} : {problem}")
        if len(messages) > MAX_ERRORS + 1:
            raise UserError(
                f"{gold} and {test}: {len(messages)} errors, more than MAX_ERROR {MAX_ERRORS} tolerates, "
                f"the last in line {number}: {problem}; check that both hold the same sentences, one tree a line"
            )

    gold_lines, test_lines = _one_a_line(gold, test)
    if len(gold_lines) != len(test_lines):
        raise UserError(
            f"{gold} has {len(gold_lines)} trees and {test} {len(test_lines)}; they must be of the same sentences"
        )
    for number, (gold_line, test_line) in enumerate(zip(gold_lines, test_lines, strict=True), 1):
        before = len(messages)
        gold_tree = _read(gold_line, f"{gold}, line {number}", report)
        test_tree = _read(test_line, f"{test}, line {number}", report)
        sentences.append(_score(number, gold_tree, test_tree, len(messages) > before, report))
    total = Total.of(sentences)
    if not total.valid:
        raise UserError(
            f"{gold} and {test}: none of {total.sentences} sentences can be scored ({total.errors} with an error, "
            f"{total.skipped} without a word); check that both hold the same sentences"
        )
    short = [sentence for sentence in sentences if sentence.length <= SHORT_WORDS]
    return BracketingScores(sentences, total, Total.of(short), messages)


def _one_a_line(gold: Path, test: Path) -> list[list[str]]:
    """Returns the trees of both files. Lines with unbalanced brackets are joined if that yields trees.

    Otherwise they are malformed, as they are where the other file has the same number of trees, one a line.
    """
    files = {path: list(read_lines(path, errors="surrogateescape")) for path in (gold, test)}
    open_after = {path: [*accumulate(line.count("(") - line.count(")") for line in files[path])] for path in files}
    one_a_line = {len(files[path]) for path in files if not any(open_after[path])}
    for path, lines in files.items():
        is_over_several = any(open_after[path]) and not open_after[path][-1] and min(open_after[path]) >= 0
        if is_over_several and len(lines) not in one_a_line:
            trees = map(cleaned, (placed.tree for placed in trees_in(lines, str(path))))
            files[path] = [bracketed(tree) for tree in trees if tree]
    return [files[gold], files[test]]


@dataclass
class _Tree:
    """The content of a line."""

    length: int = 0
    words: list[tuple[str, str]] = field(default_factory=list)
    """Tags and words."""
    counts: list[bool] = field(default_factory=list)
    """False for deleted words."""
    brackets: list[list[Any]] = field(default_factory=list)
    """Label, first word and end (exclusive), which like EVALB's is -1 if the bracket is never closed."""

    def spans(self) -> list[Span]:
        """Returns the constituents over scored words, except empty and deleted ones."""
        before = [*accumulate(self.counts, initial=0), -1]
        spans = [(FUNCTION.split(label, 1)[0], before[start], before[end]) for label, start, end in self.brackets]
        return [span for span in spans if span[1] != span[2] and span[0] not in DELETED]


def _read(line: str, place: str, report: Callable[[str], None]) -> _Tree:
    """Reads a tree; a bracket with a label, a space and a word is a word, any other is a constituent."""
    tree = _Tree()
    stack: dict[int, list[Any]] = {}
    depth = 0
    line = line.rstrip(" \t\n\v\f\r")
    for element in _ELEMENT.finditer(line):
        tag, word, label, _, text = element.groups()
        if text is not None:  # EVALB loops forever here
            raise UserError(f"{place}: {text!r} is not the only word of a bracket; correct the tree")
        if word is not None:
            tree.words.append((tag, word))
            tree.counts.append(tag not in DELETED)
            tree.length += tag != TRACE_TAG
        elif label is not None:
            if element.end() == len(line):
                report("More than two elements in a bracket")
            stack[depth] = [label, len(tree.words), -1]
            tree.brackets.append(stack[depth])
            depth += 1
        else:
            # Like EVALB, the first excess bracket goes unnoticed until the next one or the end of the line.
            if depth < 0:
                report("Bracketing unbalance (too many close bracket)")
            depth -= 1
            if depth in stack:
                stack[depth][2] = len(tree.words)
    if depth:
        report("Bracketing is unbalanced (too many open bracket)")
    return tree


def _score(line: int, gold: _Tree, test: _Tree, malformed: bool, report: Callable[[str], None]) -> SentenceScore:
    """Scores a tree against the gold tree; scores of malformed ones are computed but excluded from totals."""
    if not any(test.counts):
        return SentenceScore(line, gold.length, Status.SKIPPED)
    if sum(gold.counts) != sum(test.counts):
        report(f"Length unmatch ({sum(gold.counts)}|{sum(test.counts)})")
        return SentenceScore(line, gold.length, Status.ERROR)
    words = [*zip(compress(gold.words, gold.counts), compress(test.words, test.counts), strict=True)]
    for (_, word), (_, other) in words:
        if word != other:
            report(f"Words unmatch ({word}|{other})")
            return SentenceScore(line, gold.length, Status.ERROR)
    gold_spans, test_spans = gold.spans(), test.spans()
    crossing = sum(any(a < i < b < j or i < a < j < b for _, a, b in gold_spans) for _, i, j in test_spans)
    tags = sum(_same_label(tag, other) for (tag, _), (other, _) in words)
    brackets = _matched(gold_spans, test_spans), len(gold_spans), len(test_spans)
    return SentenceScore(line, gold.length, Status(int(malformed)), *brackets, crossing, len(words), tags)


def _same_label(first: str, second: str) -> bool:
    return first == second or {first, second} == SAME_LABELS


def _matched(gold: Sequence[Span], test: Sequence[Span]) -> int:
    """Counts matching gold brackets, each with the first unmatched test bracket of the same words."""
    unmatched = list(test)
    for label, *words in gold:
        same = (span for span in unmatched if [*span[1:]] == words and _same_label(label, span[0]))
        if match := next(same, None):
            unmatched.remove(match)
    return len(test) - len(unmatched)


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
