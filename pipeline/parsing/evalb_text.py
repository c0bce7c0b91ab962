"""Bracketing scores as EVALB prints them, and as JSON with the same digits."""

from collections.abc import Iterator
from typing import Any

from pipeline.parsing.evalb import BracketingScores, SentenceScore, Total

HEADER = (
    "  Sent.                        Matched  Bracket   Cross        Correct Tag",
    " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy",
)
RULE = "=" * 76


def sentence_table(scores: BracketingScores) -> Iterator[str]:
    """Yields EVALB's table of sentences, with the sums in its last line."""
    yield from (*HEADER, RULE)
    yield from map(sentence_line, scores.sentences)
    yield RULE
    total, brackets = scores.total, ""
    if total.gold_brackets and total.test_brackets:
        brackets = (
            f"                {total.recall:6.2f} {total.precision:6.2f} {total.matched:6d} {total.gold_brackets:5d} "
            f"{total.test_brackets:5d}  {total.crossing:5d}"
        )
    yield f"{brackets}  {total.words:5d} {total.correct_tags:5d}   {total.tagging_accuracy:6.2f}"


def sentence_line(score: SentenceScore) -> str:
    """Returns a sentence's line of the table."""
    return (
        f"{score.line:4d}  {score.length:3d}    {score.status:d}  {score.recall:6.2f} {score.precision:6.2f}   "
        f"{score.matched:3d}    {score.gold_brackets:3d}  {score.test_brackets:3d}    {score.crossing:3d}   "
        f"{score.words:4d}  {score.correct_tags:4d}   {score.tagging_accuracy:6.2f}"
    )


def summary(scores: BracketingScores) -> Iterator[str]:
    """Yields the lines of EVALB's summary."""
    yield "=== Summary ==="
    for heading, total in (("All", scores.total), (f"len<={scores.cutoff_length}", scores.total_short)):
        yield from ("", f"-- {heading} --")
        yield f"Number of sentence        = {total.sentences:6d}"
        yield f"Number of Error sentence  = {total.errors:6d}"
        yield f"Number of Skip  sentence  = {total.skipped:6d}"
        yield f"Number of Valid sentence  = {total.valid:6d}"
        yield f"Bracketing Recall         = {total.recall:6.2f}"
        yield f"Bracketing Precision      = {total.precision:6.2f}"
        yield f"Bracketing FMeasure       = {total.f1:6.2f}"
        yield f"Complete match            = {total.complete_match:6.2f}"
        yield f"Average crossing          = {total.average_crossing:6.2f}"
        yield f"No crossing               = {total.no_crossing:6.2f}"
        yield f"2 or less crossing        = {total.two_or_less_crossing:6.2f}"
        yield f"Tagging accuracy          = {total.tagging_accuracy:6.2f}"


def json_values(scores: BracketingScores, with_sentences: bool = False) -> dict[str, Any]:
    """Returns the summary as JSON values; "length_40" holds that of the short sentences whatever `cutoff_length` is."""
    values: dict[str, Any] = _figures(scores.total)
    values |= {"cutoff_length": scores.cutoff_length, "length_40": _figures(scores.total_short)}
    if with_sentences:
        values["sentence_lines"] = [sentence_line(score) for score in scores.sentences]
    return values


def _figures(total: Total) -> dict[str, Any]:
    return {
        "recall": round_as_printed(total.recall),
        "precision": round_as_printed(total.precision),
        "f1": round_as_printed(total.f1),
        "complete_match": round_as_printed(total.complete_match),
        "average_crossing": round_as_printed(total.average_crossing),
        "no_crossing": round_as_printed(total.no_crossing),
        "two_or_less_crossing": round_as_printed(total.two_or_less_crossing),
        "tagging_accuracy": round_as_printed(total.tagging_accuracy),
        "sentences": total.sentences,
        "errors": total.errors,
        "skipped": total.skipped,
        "valid": total.valid,
    }


def round_as_printed(value: float) -> float | None:
    """Rounds to the two digits that EVALB prints; None for what is no number."""
    return None if value != value else float(f"{value:.2f}")
