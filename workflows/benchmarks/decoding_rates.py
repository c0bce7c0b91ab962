"""The results of `aiayn bench decode`: rates, ratios, agreement, and the table that shows them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from rich.table import Table

from workflows.benchmarks.decoding_contenders import Output, WorkerLayout
from workflows.benchmarks.rounds import ratio
from workflows.console.command import console

OURS, CTRANSLATE2, MARIAN = "aiayn", "CTranslate2", "MarianMT"


class DecodingRound(NamedTuple):
    """One timed translation of all sentences."""

    outputs: list[Output]
    seconds: float


@dataclass
class DecodingRates:
    """The measurements of one contender."""

    name: str
    dtype: str
    layout: WorkerLayout
    batch_size: int | None = None
    """Sentences searched at once; None if the contender has its own rule."""
    rounds: list[DecodingRound] = field(default_factory=list)
    peak_memory_gb: float = 0.0
    """Sum over all its processes."""
    failed: str | None = None
    """Why the contender has no figures, or None."""

    @property
    def sentences_s_by_round(self) -> list[float]:
        """Sentences per second in each round; empty if the contender failed."""
        return [] if self.failed else [len(done.outputs) / done.seconds for done in self.rounds]

    @property
    def texts(self) -> list[str]:
        """The translations of the last round."""
        return [output.text for output in self.rounds[-1].outputs]

    def described(self, score: Callable[[list[str]], dict[str, Any]]) -> dict[str, Any]:
        """Returns the contender's entry in --json; `score` returns the BLEU scores of texts, or an empty dict."""
        described: dict[str, Any] = {"name": self.name, "dtype": self.dtype, "failed": self.failed}
        if self.failed:
            return described
        tokens_s = [sum(output.n_tokens for output in done.outputs) / done.seconds for done in self.rounds]
        return described | {
            "workers": self.layout.workers,
            "threads": self.layout.threads,
            "batch_size": self.batch_size,
            "sentences_s": median(self.sentences_s_by_round),
            "sentences_s_spread": [min(self.sentences_s_by_round), max(self.sentences_s_by_round)],
            "tokens_s": median(tokens_s),
            "peak_memory_gb": self.peak_memory_gb,
            **score(self.texts),
        }


def figures(contenders: Sequence[DecodingRates], score: Callable[[list[str]], dict[str, Any]]) -> dict[str, Any]:
    """Returns rates, ratios and scores; our own contender in floating point comes first and has not failed."""
    described = [rates.described(score) for rates in contenders]

    def fastest(name: str, *, int8: bool = False) -> int | None:
        """Returns the index of the fastest contender with this name, in a floating-point type or in int8."""
        places = [
            i
            for i, rates in enumerate(contenders)
            if rates.name == name and (rates.dtype == "int8") == int8 and not rates.failed
        ]
        return max(places, key=lambda i: described[i]["sentences_s"], default=None)

    def against(key: str, place: int | None) -> dict[str, Any]:
        return ratio(key, contenders[0].sentences_s_by_round, _by_round(contenders, place))

    ours, best = described[0], fastest(CTRANSLATE2)
    int8, peers_int8 = fastest(OURS, int8=True), fastest(CTRANSLATE2, int8=True)
    return {
        **{key: ours[key] for key in ("sentences_s", "sentences_s_spread", "tokens_s")},
        **against("ratio_ctranslate2", best),
        **against("ratio_ctranslate2_int8", peers_int8),
        **ratio("ratio_int8_ctranslate2_int8", _by_round(contenders, int8), _by_round(contenders, peers_int8)),
        **against("ratio_transformers", fastest(MARIAN)),
        "sacrebleu_ours": ours.get("sacrebleu"),
        "sacrebleu_ctranslate2": None if best is None else described[best].get("sacrebleu"),
        "peak_memory_gb": ours["peak_memory_gb"],
        "contenders": described,
    }


def _by_round(contenders: Sequence[DecodingRates], place: int | None) -> list[float]:
    """Returns the rates of one contender, or none."""
    return [] if place is None else contenders[place].sentences_s_by_round


def print_table(result: dict[str, Any]) -> None:
    """Prints the result of `measure` for people to read."""
    title = (
        f"{result['sentences']} sentences, beam {result['beam_size']}, length penalty {result['length_penalty']:g}, "
        f"{result['device_name']}"
    )
    cores = f", {result['threads']} thread{'s' if result['threads'] > 1 else ''}" if result["device"] == "cpu" else ""
    table = Table(
        title=title + cores, caption="layout: workers × threads per worker; batch: sentences searched at once"
    )
    table.add_column("translator")
    scored = result["sacrebleu_ours"] is not None
    headings = ["layout", "batch", "sentences/s", "spread", "ours is\nfaster\nby", "tokens/s"]
    for heading in [*headings, *(["sacreBLEU", "paper\nBLEU"] if scored else []), "peak\nmemory,\nGB"]:
        table.add_column(heading, justify="right")
    for entry in result["contenders"]:
        if entry["failed"]:
            continue
        table.add_row(
            f"{entry['name']} {entry['dtype']}",
            str(WorkerLayout(entry["workers"], entry["threads"])),
            str(entry["batch_size"] or "own"),
            _rate(entry["sentences_s"]),
            " to ".join(map(_rate, entry["sentences_s_spread"])),
            f"{result['sentences_s'] / entry['sentences_s']:.2f}",
            f"{entry['tokens_s']:.0f}",
            *([f"{entry['sacrebleu']:.2f}", f"{entry['paper_bleu']:.2f}"] if scored else []),
            f"{entry['peak_memory_gb']:.2f}",
        )
    console.print(table)
    lines = [_agreement_line(result)]
    lines += [f"{e['name']} {e['dtype']} has no figures: {e['failed']}" for e in result["contenders"] if e["failed"]]
    for line in filter(None, lines):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _rate(sentences_s: float) -> str:
    return f"{sentences_s:.{0 if sentences_s >= 100 else 1}f}"


def _agreement_line(result: dict[str, Any]) -> str:
    """Describes how far the outputs agree; empty if no peer took part."""
    shares = {CTRANSLATE2: result["agreement_ctranslate2"], MARIAN: result["agreement_transformers"]}
    same = [f"{share:.1%} of {name}'s" for name, share in shares.items() if share is not None]
    if not same:
        return ""
    difference = result["log_probability_difference"]
    return f"at length penalty 0, {' and '.join(same)} float32 outputs equal ours token by token" + (
        "" if difference is None else f"; log-probabilities of our outputs differ by at most {difference:.1g}"
    )
