"""Draws when each stage of a run ran, as SVG of any width: a bar a stage, and what each of them waited for.

    timeline(stages_behind(artifacts))

The bars' places are percentages and the text is beside them, so the drawing is as legible on a telephone as on a wide
screen. Pauses in which nothing ran, between runs that each made a part, are cut out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from workflows.console.quantities import duration
from workflows.history.records import Span, StageRecord, spans

ROW_PX, BAR_PX, HEAD_PX = 18, 11, 22
MOST_BARS = 80
"""The most stages that are drawn: the longest."""
CUT_PERCENT = 3.0
"""The width of a pause that is cut out."""
RIGHT_PERCENT, LEFT_PERCENT = 52.0, 48.0
"""A bar that ends before the first has its label on its right, one that begins after the second on its left."""
KINDS = {"training.train": "training"}
"""The stages whose bars have a colour of their own."""


@dataclass(frozen=True)
class _Scale:
    """Turns seconds since the epoch into percentages of the width."""

    spans: Sequence[Span]

    @property
    def percent_a_second(self) -> float:
        total_s = sum(span.seconds for span in self.spans)
        return (100 - CUT_PERCENT * (len(self.spans) - 1)) / max(total_s, 1e-9)

    def percent(self, at_s: float) -> float:
        left = 0.0
        for span in self.spans:
            if at_s <= span.ended_s:
                return left + max(0.0, at_s - span.began_s) * self.percent_a_second
            left += span.seconds * self.percent_a_second + CUT_PERCENT
        return 100.0


def last_input(record: StageRecord, known: Mapping[str, StageRecord]) -> StageRecord | None:
    """Returns the input that was finished last, which is what a stage waited for; None if it has none."""
    inputs = [known[fingerprint] for fingerprint in record.inputs.values() if fingerprint in known]
    return max(inputs, key=lambda one: one.ended_s, default=None)


def waited_s(record: StageRecord, known: Mapping[str, StageRecord]) -> float:
    """Returns the seconds between the end of its last input, or the run's beginning, and a stage's own beginning.

    It is zero where the inputs are from an earlier run.
    """
    runs = spans(known.values())
    began = next(span.began_s for span in runs if span.began_s <= record.began_s <= span.ended_s)
    needed = last_input(record, known)
    if needed and needed.ended_s >= began:
        began = needed.ended_s
    return max(0.0, record.began_s - began)


def described(record: StageRecord, known: Mapping[str, StageRecord]) -> str:
    """Says in words when a stage ran and what it waited for."""
    first_s = min(one.began_s for one in known.values())
    told = f"{record.label}: {duration(record.seconds)}, began {duration(record.began_s - first_s)} after the first"
    needed, waited = last_input(record, known), waited_s(record, known)
    if needed:
        told += f"; its last input was {needed.label}"
    if waited >= 1:
        told += f", {duration(waited)} before" if needed else f"; waited {duration(waited)}"
    if record.loop_s is not None and record.seconds - record.loop_s >= 1:
        told += f"; {duration(record.seconds - record.loop_s)} of it waiting for workers, starting and ending"
    return told


def timeline(records: Sequence[StageRecord]) -> Markup:
    """Returns the drawing; empty where there are no stages."""
    if not records:
        return Markup("")
    known = {record.fingerprint: record for record in records}
    scale = _Scale(spans(records))
    longest = sorted(records, key=lambda one: one.seconds, reverse=True)[:MOST_BARS]
    shown = [record for record in records if record in longest]
    rows = {record.fingerprint: HEAD_PX + ROW_PX * i + ROW_PX / 2 for i, record in enumerate(shown)}
    height_px = HEAD_PX + ROW_PX * len(shown) + 4
    parts = [*_axis(scale, height_px)]
    parts += [part for record in shown for part in _connection(record, known, rows, scale)]
    parts += [_bar(record, known, rows[record.fingerprint], scale) for record in shown]
    of_all = f"{len(shown)} longest of {len(records)} stages" if len(shown) < len(records) else f"{len(shown)} stages"
    told = f"When the {of_all} ran, in {duration(sum(span.seconds for span in scale.spans))}"
    head = Markup('<svg role="img" aria-label="{}" class="timeline" width="100%" height="{:g}">')
    return head.format(told, height_px) + Markup("").join(parts) + Markup("</svg>")


def _axis(scale: _Scale, height_px: float) -> list[Markup]:
    """Draws lines at whole seconds, minutes or hours since the beginning of each span, and where a pause is cut out."""
    total_s = sum(span.seconds for span in scale.spans)
    steps = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400)
    step_s = next((step for step in steps if total_s / step <= 5), 7 * 86400)
    line = Markup('<line class="grid" x1="{x:.2f}%" x2="{x:.2f}%" y1="{y}" y2="{end:g}"/>')
    text = Markup('<text class="tick" x="{:.2f}%" y="12">{}</text>')
    parts = []
    for i, span in enumerate(scale.spans):
        at_s = 0.0
        while at_s <= span.seconds:
            x = scale.percent(span.began_s + at_s)
            parts.append(line.format(x=x, y=16, end=height_px))
            if x < 90:
                parts.append(text.format(x, duration(at_s)))
            at_s += step_s
        if i:
            pause_s = span.began_s - scale.spans[i - 1].ended_s
            cut = Markup('<rect class="cut" x="{:.2f}%" y="16" width="{}%" height="{:g}"><title>{}</title></rect>')
            told = f"a pause of {duration(pause_s)}: what is left of it was made by an earlier run"
            parts.append(cut.format(scale.percent(span.began_s) - CUT_PERCENT, CUT_PERCENT, height_px - 16, told))
    return parts


def _connection(
    record: StageRecord, known: Mapping[str, StageRecord], rows: Mapping[str, float], scale: _Scale
) -> list[Markup]:
    """Draws a line from the end of the last input down to the stage's row, and on to its beginning."""
    needed = last_input(record, known)
    if needed is None or needed.fingerprint not in rows:
        return []
    x, begin = scale.percent(needed.ended_s), scale.percent(record.began_s)
    y, above = rows[record.fingerprint], rows[needed.fingerprint]
    down = Markup('<line class="wait" x1="{x:.2f}%" x2="{x:.2f}%" y1="{above:g}" y2="{y:g}"/>')
    across = Markup('<line class="wait" x1="{x:.2f}%" x2="{begin:.2f}%" y1="{y:g}" y2="{y:g}"/>')
    return [down.format(x=x, above=above, y=y), across.format(x=x, begin=begin, y=y)]


def _bar(record: StageRecord, known: Mapping[str, StageRecord], y: float, scale: _Scale) -> Markup:
    begin, end = scale.percent(record.began_s), scale.percent(record.ended_s)
    width, top = max(end - begin, 0.15), y - BAR_PX / 2
    kind = KINDS.get(record.stage, "other")
    rect = Markup('<rect class="{}" x="{:.2f}%" y="{:g}" width="{:.2f}%" height="{}"/>')
    bars = rect.format(kind, begin, top, width, BAR_PX)
    if record.loop_s is not None and record.loop_s < record.seconds:
        looped = width * record.loop_s / record.seconds
        bars = rect.format("starting", begin, top, width, BAR_PX)
        bars += rect.format(kind, begin + width - looped, top, looped, BAR_PX)
    at, dx, anchor = (end, 4, "after")
    if end > RIGHT_PERCENT:
        at, dx, anchor = (begin, -4, "before") if begin > LEFT_PERCENT else (begin, 4, "after")
    label = Markup('<text x="{:.2f}%" dx="{}" y="{:g}" class="{}">{} <tspan class="took">{}</tspan></text>').format(
        at, dx, y + 3.5, anchor, record.label, _took(record.seconds)
    )
    return Markup("<g><title>{}</title>{}{}</g>").format(described(record, known), bars, label)


def _took(seconds: float) -> str:
    return duration(seconds) if seconds >= 9.95 else f"{seconds:.1f} s"


def table(records: Sequence[StageRecord]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Returns what the drawing shows as the columns and rows of a CSV file."""
    known = {record.fingerprint: record for record in records}
    columns = ("stage", "fingerprint", "started", "seconds", "last_input", "seconds_after_it", "loop_seconds")
    rows: list[tuple[object, ...]] = []
    for record in records:
        needed = last_input(record, known)
        waited = round(waited_s(record, known), 3)
        name = needed.label if needed else ""
        started = record.started.isoformat()
        rows.append((record.label, record.fingerprint, started, record.seconds, name, waited, record.loop_s))
    return columns, rows
