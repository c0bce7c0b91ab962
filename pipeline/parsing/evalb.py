"""Bracketing scores as the program EVALB computes them (S. Sekine and M. J. Collins, version 20080701): Table 4's F1.

    scores = score_trees(Path("gold.trees"), Path("parsed.trees"))
    scores.total.f1, scores.total_short.f1    # of all sentences, and of those of at most 40 words

Line i of one file is scored against line i of the other. A constituent counts as found if the other tree has one of the
same label over the same words, once `EvalbParameters` have removed punctuation. What EVALB does with malformed lines is
done here too, up to its limits on their length, which are lifted.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from pipeline.errors import UserError
from pipeline.parsing.evalb_parameters import COLLINS, EvalbParameters
from pipeline.text.lines import read_lines

SPACES = " \t\n\v\f\r"
_SPACES = re.compile(f"[{SPACES}]*")
_TOKEN = re.compile(f"[^(){SPACES}]*")
_FUNCTION = re.compile("[-=]")
_QUOTES = ("'", '"', "/")


class Status(IntEnum):
    """What became of a sentence, with EVALB's numbers."""

    VALID = 0
    ERROR = 1
    SKIPPED = 2
    """The tree to be scored holds no word that counts."""


class _Shares:
    """The figures that a sentence and a total have in common, in percent; 0 where there is nothing to be shared."""

    matched: int
    gold_brackets: int
    test_brackets: int
    words: int
    correct_tags: int

    @property
    def recall(self) -> float:
        """Share of the gold brackets that are matched."""
        return _percent(self.matched, self.gold_brackets)

    @property
    def precision(self) -> float:
        """Share of the brackets to be scored that are matched."""
        return _percent(self.matched, self.test_brackets)

    @property
    def tagging_accuracy(self) -> float:
        """Share of the words with the gold tree's tag."""
        return _percent(self.correct_tags, self.words)


@dataclass(frozen=True)
class SentenceScore(_Shares):
    """The figures of one line of both files; those that an error or a missing tree left uncounted are 0."""

    line: int
    length: int
    """Words of the gold tree, punctuation included."""
    status: Status
    matched: int = 0
    gold_brackets: int = 0
    test_brackets: int = 0
    crossing: int = 0
    """Brackets of the tree to be scored that overlap one of the gold tree without either holding the other."""
    words: int = 0
    """Words that count, the same in both trees."""
    correct_tags: int = 0


@dataclass
class Total(_Shares):
    """Sums over sentences; those with an error and skipped ones are only counted as such."""

    sentences: int = 0
    errors: int = 0
    skipped: int = 0
    matched: int = 0
    gold_brackets: int = 0
    test_brackets: int = 0
    complete: int = 0
    """Sentences of which all brackets match."""
    crossing: int = 0
    without_crossing: int = 0
    with_two_or_less_crossing: int = 0
    words: int = 0
    correct_tags: int = 0

    def add(self, score: SentenceScore) -> None:
        """Counts a sentence."""
        self.sentences += 1
        self.errors += score.status is Status.ERROR
        self.skipped += score.status is Status.SKIPPED
        if score.status is Status.VALID:
            self.matched += score.matched
            self.gold_brackets += score.gold_brackets
            self.test_brackets += score.test_brackets
            self.complete += score.matched == score.gold_brackets == score.test_brackets
            self.crossing += score.crossing
            self.without_crossing += score.crossing == 0
            self.with_two_or_less_crossing += score.crossing <= 2
            self.words += score.words
            self.correct_tags += score.correct_tags

    @property
    def valid(self) -> int:
        """Sentences that the figures are computed on."""
        return self.sentences - self.errors - self.skipped

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall in percent; not a number if both are 0."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else math.nan

    @property
    def complete_match(self) -> float:
        """Share of sentences of which all brackets match, in percent."""
        return _percent(self.complete, self.valid)

    @property
    def average_crossing(self) -> float:
        """Crossing brackets per sentence."""
        return self.crossing / self.valid if self.valid else 0.0

    @property
    def no_crossing(self) -> float:
        """Share of sentences without a crossing bracket, in percent."""
        return _percent(self.without_crossing, self.valid)

    @property
    def two_or_less_crossing(self) -> float:
        """Share of sentences with at most two crossing brackets, in percent."""
        return _percent(self.with_two_or_less_crossing, self.valid)


@dataclass
class BracketingScores:
    """The scores of a file of trees."""

    cutoff_length: int
    sentences: list[SentenceScore] = field(default_factory=list)
    total: Total = field(default_factory=Total)
    total_short: Total = field(default_factory=Total)
    """The same for sentences of at most `cutoff_length` words."""
    messages: list[str] = field(default_factory=list)
    """EVALB's messages about malformed or unequal lines, each as "line : message"."""


def score_trees(gold: Path, test: Path, parameters: EvalbParameters = COLLINS) -> BracketingScores:
    """Scores the trees of `test` against those of `gold`, one a line, in plain or gzip files.

    Raises UserError where a file cannot be read, or where more errors are found than EVALB tolerates.
    """
    scores = BracketingScores(parameters.cutoff_length)
    errors = _Errors(f"{gold} and {test}", parameters.max_errors, scores.messages)
    files = (read_lines(path, errors="surrogateescape") for path in (gold, test))
    for line, (gold_line, test_line) in enumerate(zip_longest(*files), 1):
        before = len(errors.messages)
        errors.line = line
        gold_tree = None if gold_line is None else _read(gold_line, parameters, errors)
        if gold_tree is None or test_line is None:
            longer = "gold" if test_line is None else "test"
            errors.add(f"Number of lines unmatch (too many lines in {longer} file)")
            break
        test_tree = _read(test_line, parameters, errors)
        status = Status.ERROR if len(errors.messages) > before else Status.VALID
        score = _score(gold_tree, test_tree, status, parameters, errors)
        scores.sentences.append(score)
        scores.total.add(score)
        if score.length <= parameters.cutoff_length:
            scores.total_short.add(score)
    return scores


class _Errors:
    """Collects EVALB's messages and ends the scoring when there are too many."""

    def __init__(self, files: str, max_errors: int, messages: list[str]) -> None:
        self.files, self.max_errors, self.messages, self.line = files, max_errors, messages, 0

    def add(self, message: str) -> None:
        """Records an error in the present line. Raises UserError for the second one beyond `max_errors`."""
        self.messages.append(f"{self.line} : {message}")
        if len(self.messages) > self.max_errors + 1:
            raise UserError(
                f"{self.files}: {len(self.messages)} errors, more than MAX_ERROR {self.max_errors} tolerates, the last "
                f"in line {self.line}: {message}; check that both hold the same sentences, one tree a line"
            )


class _Terminal(NamedTuple):
    """A word with its tag."""

    tag: str
    word: str


@dataclass
class _Bracket:
    """A constituent over words `start` to `end`, exclusive; one that is never closed ends at -1, as in EVALB."""

    label: str
    start: int
    end: int = -1

    def counts(self, parameters: EvalbParameters) -> bool:
        """Cuts functions off the label and tells whether the bracket holds words and is not to be deleted."""
        if self.start == self.end:
            return False
        self.label = _FUNCTION.split(self.label, maxsplit=1)[0]
        return not parameters.deletes_bracket(self.label)


@dataclass
class _Quote:
    """A word that may be a quote, kept or deleted, and its place: words, brackets and open brackets before it."""

    terminal: _Terminal
    index: int
    brackets: int
    open_brackets: list[_Bracket]


@dataclass
class _Tree:
    """What EVALB reads from a line."""

    length: int = 0
    terminals: list[_Terminal] = field(default_factory=list)
    brackets: list[_Bracket] = field(default_factory=list)
    quotes: list[_Quote] = field(default_factory=list)

    def reinsert(self, number: int) -> None:
        """Puts a deleted quote back among the words, and moves what comes after it."""
        quote = self.quotes[number]
        self.terminals.insert(quote.index, quote.terminal)
        for bracket in self.brackets[quote.brackets :]:
            bracket.start += 1
            bracket.end += 1
        for bracket in quote.open_brackets:
            bracket.end += 1
        for later in self.quotes[number:]:
            later.index += 1


def _read(line: str, parameters: EvalbParameters, errors: _Errors) -> _Tree:
    """Reads a tree; a bracket with a label, a space and a word is a terminal, any other is a constituent."""
    tree = _Tree()
    stack: dict[int, _Bracket] = {}
    depth = at = 0
    while at < len(line):
        if line[at] in SPACES:
            at += 1
        elif line[at] == "(":
            label = _token(line, at + 1)
            at += 1 + len(label)
            word_at = _after_spaces(line, at)
            if word_at > at or word_at == len(line):
                terminal = _Terminal(label, _token(line, word_at))
                end = word_at + len(terminal.word)
                if line[end : end + 1] == ")":
                    _add_terminal(tree, terminal, (stack[level] for level in range(depth)), parameters)
                    at = end + 1
                    continue
                if line[end : end + 1] != "(":
                    errors.add("More than two elements in a bracket")
            bracket = _Bracket(label, len(tree.terminals))
            tree.brackets.append(bracket)
            stack[depth] = bracket
            depth += 1
        elif line[at] == ")":
            # As in EVALB, the first bracket too many goes unnoticed until the next one or the end of the line.
            if depth < 0:
                errors.add("Bracketing unbalance (too many close bracket)")
            depth -= 1
            if depth in stack:
                stack[depth].end = len(tree.terminals)
            at += 1
        else:
            while True:  # EVALB does not get past this character; it repeats itself until there are too many errors
                errors.add("Reading sentence")
    if depth:
        errors.add("Bracketing is unbalanced (too many open bracket)")
    return tree


def _add_terminal(
    tree: _Tree, terminal: _Terminal, open_brackets: Iterable[_Bracket], parameters: EvalbParameters
) -> None:
    """Adds a word unless its tag is to be deleted; remembers where it stands if it may be a quote."""
    tree.length += terminal.tag not in parameters.delete_labels_for_length
    if terminal.tag in parameters.quote_labels and terminal.word in _QUOTES:
        tree.quotes.append(_Quote(terminal, len(tree.terminals), len(tree.brackets), list(open_brackets)))
    if terminal.tag not in parameters.delete_labels:
        tree.terminals.append(terminal)


def _token(line: str, at: int) -> str:
    token = _TOKEN.match(line, at)
    return token[0] if token else ""


def _after_spaces(line: str, at: int) -> int:
    spaces = _SPACES.match(line, at)
    return spaces.end() if spaces else at


def _score(gold: _Tree, test: _Tree, status: Status, parameters: EvalbParameters, errors: _Errors) -> SentenceScore:
    """Scores a tree against the gold one; `status` is an error if one was found while reading."""
    line = errors.line
    if not test.terminals:
        return SentenceScore(line, gold.length, Status.SKIPPED)
    if len(gold.terminals) != len(test.terminals):
        _restore_quotes(gold, test, parameters)
    if len(gold.terminals) != len(test.terminals):
        errors.add(f"Length unmatch ({len(gold.terminals)}|{len(test.terminals)})")
        return SentenceScore(line, gold.length, Status.ERROR)
    for word, other in zip(gold.terminals, test.terminals, strict=True):
        if not parameters.same_word(word.word, other.word):
            errors.add(f"Words unmatch ({word.word}|{other.word})")
            return SentenceScore(line, gold.length, Status.ERROR)
    gold_brackets, test_brackets = (
        [bracket for bracket in tree.brackets if bracket.counts(parameters)] for tree in (gold, test)
    )
    tags = zip(gold.terminals, test.terminals, strict=True)
    return SentenceScore(
        line,
        gold.length,
        status,
        matched=_matched(gold_brackets, test_brackets, parameters),
        gold_brackets=len(gold_brackets),
        test_brackets=len(test_brackets),
        crossing=_crossing(gold_brackets, test_brackets),
        words=len(gold.terminals),
        correct_tags=sum(parameters.same_label(tag.tag, other.tag) for tag, other in tags),
    )


def _restore_quotes(gold: _Tree, test: _Tree, parameters: EvalbParameters) -> None:
    """Puts back each quote that one file's tag deletes and the other's does not."""
    for number, quote in enumerate(test.quotes):
        index, test_deletes = quote.index, quote.terminal.tag in parameters.delete_labels
        for gold_number, gold_quote in enumerate(gold.quotes):
            if gold_quote.index == index and gold_quote.terminal.tag != quote.terminal.tag:
                gold_deletes = gold_quote.terminal.tag in parameters.delete_labels
                if gold_deletes and not test_deletes:
                    gold.reinsert(gold_number)
                elif test_deletes and not gold_deletes:
                    test.reinsert(number)


def _matched(gold: list[_Bracket], test: list[_Bracket], parameters: EvalbParameters) -> int:
    """Counts gold brackets that match, each the first bracket of the same words not yet matched."""
    unmatched: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for bracket in test:
        unmatched[bracket.start, bracket.end].append(bracket.label)
    matched = 0
    for bracket in gold:
        labels = unmatched[bracket.start, bracket.end]
        for at, label in enumerate(labels):
            if not parameters.labeled or parameters.same_label(bracket.label, label):
                del labels[at]
                matched += 1
                break
    return matched


def _crossing(gold: list[_Bracket], test: list[_Bracket]) -> int:
    spans = {(bracket.start, bracket.end) for bracket in gold}
    return sum(any(_cross(bracket.start, bracket.end, *span) for span in spans) for bracket in test)


def _cross(start: int, end: int, other_start: int, other_end: int) -> bool:
    return other_start < start < other_end < end or start < other_start < end < other_end


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
