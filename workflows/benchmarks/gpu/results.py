"""The results of `make gpu`: a JSON file for each step, written as soon as something is known, and the table of all."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from rich.table import Table

Status = Literal["running", "done", "failed", "timed out", "skipped"]
OK: tuple[Status, ...] = ("done", "skipped")


@dataclass
class StepResult:
    """`<step>.json`: how a step ended and what it has measured, even if it was killed."""

    step: str
    status: Status
    began: str = ""
    seconds: float = 0.0
    reason: str = ""
    """Why the step was skipped or failed."""
    figures: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Replaces the file in one move, so that a kill leaves the old one or the new one."""
        path = folder / f"{self.step}.json"
        aside = path.with_suffix(".making")
        aside.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        os.replace(aside, path)

    @classmethod
    def read(cls, folder: Path, step: str) -> "StepResult | None":
        """Returns the result of a step, or None if it has none."""
        path = folder / f"{step}.json"
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def table(results: list[StepResult]) -> Table:
    """Renders the results, one line per step."""
    rendered = Table(title="make gpu")
    for heading in ("step", "status", "s", "result"):
        rendered.add_column(heading, justify="right" if heading == "s" else "left")
    for result in results:
        describe = next((text for prefix, text in DESCRIPTIONS.items() if result.step.startswith(prefix)), None)
        try:
            found = describe(result.figures) if describe and result.figures else ""
        except KeyError as missing:  # the step was killed before it measured this
            found = f"no {missing.args[0]} yet"
        text = "; ".join(filter(None, [found, result.reason]))
        rendered.add_row(result.step, result.status, f"{result.seconds:.0f}", text)
    return rendered


def _rate(figures: Mapping[str, Any]) -> str:
    rates = ", ".join(f"{name} {max(flop_s) / 1e12:.4g} TFLOP/s" for name, flop_s in figures["matmul_flop_s"].items())
    return f"{figures['device_name']}: {rates}; layers are {'' if figures['compiles'] else 'not '}compiled"


def _tests(figures: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{figures[name]} {name}" for name in ("passed", "failed", "skipped"))
    return "; ".join([counts, *figures["failures"], *figures["skips"]])


def _training(figures: Mapping[str, Any]) -> str:
    profile = figures["profile"]
    return (
        f"{figures['tokens_s']:.0f} target tokens/s in {figures['dtype']}, {figures['roofline_fraction']:.1%} of its "
        f"rate, {figures['contenders'][0]['update_s']:.3g} s an update, {figures['peak_memory_gb']:.1f} GB; "
        f"operations fill {profile['operations_s'] / profile['seconds']:.0%} of the time"
    )


def _text(figures: Mapping[str, Any]) -> str:
    return (
        f"{figures['text']}, {figures['updates']} updates of {figures['dtype']} in {figures['train_s']:.0f} s: dev "
        f"perplexity {figures['dev_perplexity']:.2f}, sacreBLEU {figures['sacrebleu']:.2f}, "
        f"paper BLEU {figures['paper_bleu']:.2f}"
    )


def _decoding(figures: Mapping[str, Any]) -> str:
    best = max(figures["rates"], key=lambda rate: rate["sentences_s"])
    same = figures["same_as_cpu"]
    return (
        f"{best['sentences_s']:.0f} sentences/s ({best['precision']}, batches of {best['batch_tokens']} tokens); "
        f"{same['equal']} of {same['sentences']} outputs equal the CPU's in float32, and their log-probabilities to "
        f"{same['log_probability_difference']:.1g}"
    )


DESCRIPTIONS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "rate": _rate,
    "tests": _tests,
    "train": _training,
    "text": _text,
    "decode": _decoding,
}
"""What the table says of a step, by the beginning of its name."""
