"""The parameters of EVALB: COLLINS.prm, with which parsers of the Penn Treebank are compared, or a file like it."""

import logging
import re
from dataclasses import dataclass
from pathlib import Path

from pipeline.text.lines import read_lines

log = logging.getLogger(__name__)

_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_SPACES = " \t\n\v\f\r"


@dataclass(frozen=True)
class EvalbParameters:
    """What EVALB counts; the defaults are those of COLLINS.prm."""

    max_errors: int = 10
    """MAX_ERROR: one error more is tolerated, the next ends the scoring."""
    cutoff_length: int = 40
    """CUTOFF_LEN: the second summary is of the sentences of at most this many words."""
    labeled: bool = True
    """LABELED: brackets match only if their labels do."""
    delete_labels: tuple[str, ...] = ("TOP", "-NONE-", ",", ":", "``", "''", ".")
    """DELETE_LABEL: words with these tags, and brackets with these labels, do not count."""
    delete_labels_for_length: tuple[str, ...] = ("-NONE-",)
    """DELETE_LABEL_FOR_LENGTH: words with these tags do not count for the length of a sentence."""
    quote_labels: tuple[str, ...] = ()
    """QUOTE_LABEL: tags of words that are a quote in one file and none in the other."""
    equal_labels: tuple[tuple[str, str], ...] = (("ADVP", "PRT"),)
    """EQ_LABEL: labels or tags that count as the same, either way round."""
    equal_words: tuple[tuple[str, str], ...] = ()
    """EQ_WORD: words that count as the same, either way round."""

    def same_label(self, first: str, second: str) -> bool:
        """Compares two labels or tags."""
        return first == second or (first, second) in self.equal_labels or (second, first) in self.equal_labels

    def same_word(self, first: str, second: str) -> bool:
        """Compares two words."""
        return first == second or (first, second) in self.equal_words or (second, first) in self.equal_words

    def deletes_bracket(self, label: str) -> bool:
        """Tells whether brackets with a label, without its functions, do not count."""
        return any(self.same_label(label, deleted) for deleted in self.delete_labels)


COLLINS = EvalbParameters()


def read_parameters(path: Path) -> EvalbParameters:
    """Reads a .prm file; what it does not name has EVALB's own value, not that of COLLINS.prm: no label is deleted.

    Like EVALB, it warns of lines that it does not understand and leaves them out. DEBUG is ignored. Raises UserError if
    the file cannot be read.
    """
    numbers = {"MAX_ERROR": 10, "CUTOFF_LEN": 40, "LABELED": 1, "DEBUG": 0}
    labels: dict[str, list[str]] = {"DELETE_LABEL": [], "DELETE_LABEL_FOR_LENGTH": [], "QUOTE_LABEL": []}
    pairs: dict[str, list[tuple[str, str]]] = {"EQ_LABEL": [], "EQ_WORD": []}
    for number, line in enumerate(read_lines(path, errors="surrogateescape"), 1):
        line = line.rstrip(_SPACES)
        if line.startswith("#") or len(line) < 3:
            continue
        key = re.split(f"[{_SPACES}]", line, maxsplit=1)[0]
        value = line[len(key) :].strip(_SPACES)
        if not value:
            log.warning("%s, line %d: %s has no value; ignored", path, number, key)
        elif key in numbers:
            integer = _INTEGER.match(value)
            numbers[key] = int(integer[0]) if integer else 0
        elif key in labels:
            labels[key].append(value)
        elif key in pairs:
            match re.findall(f"[^{_SPACES}]+", value):
                case [first, second]:
                    pairs[key].append((first, second))
                case _:
                    log.warning("%s, line %d: %s needs two values; ignored", path, number, key)
        else:
            log.warning("%s, line %d: unknown keyword %r; ignored", path, number, key)
    return EvalbParameters(
        max_errors=numbers["MAX_ERROR"],
        cutoff_length=numbers["CUTOFF_LEN"],
        labeled=numbers["LABELED"] != 0,
        delete_labels=tuple(labels["DELETE_LABEL"]),
        delete_labels_for_length=tuple(labels["DELETE_LABEL_FOR_LENGTH"]),
        quote_labels=tuple(labels["QUOTE_LABEL"]),
        equal_labels=tuple(pairs["EQ_LABEL"]),
        equal_words=tuple(pairs["EQ_WORD"]),
    )
