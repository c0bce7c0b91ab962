"""The results of `aiayn bench train`: rates, ratios, the roofline, and the table that shows them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from workflows.benchmarks.rounds import ratio
from workflows.console.command import console

if TYPE_CHECKING:  # the module imports torch
    from workflows.benchmarks.training_contenders import TrainingRound

OURS, SAVING, IN_RAY = "aiayn", "aiayn with a checkpoint", "aiayn in Ray Train"
TORCH, MARIAN = "torch.nn.Transformer", "MarianMT"
CHECKPOINT_INTERVAL_S = 600.0
"""Time between checkpoints in the paper (§6.1)."""
PRINTED_OPERATIONS = 5
"""Number of a profile's operations named below the table."""


@dataclass
class TrainingRates:
    """The measurements of one contender."""

    name: str
    dtype: str = ""
    rounds: "list[TrainingRound]" = field(default_factory=list)
    failed: str | None = None
    """Why the contender has no figures, or None."""

    @property
    def tokens_s_by_round(self) -> list[float]:
        """Real target tokens per second in each round."""
        return [done.work.target_tokens / done.seconds for done in self.rounds]

    @property
    def tokens_s(self) -> float | None:
        """Median over the rounds; None if the contender failed."""
        return None if self.failed else median(self.tokens_s_by_round)

    def described(self, updates: int) -> dict[str, Any]:
        """Returns the contender's entry in --json."""
        described: dict[str, Any] = {"name": self.name, "dtype": self.dtype, "failed": self.failed}
        if not self.failed:
            seconds = sum(done.seconds for done in self.rounds)
            described |= {
                "tokens_s": self.tokens_s,
                "tokens_s_spread": [min(self.tokens_s_by_round), max(self.tokens_s_by_round)],
                "target_tokens": sum(done.work.target_tokens for done in self.rounds),
                "seconds": seconds,
                "update_s": seconds / len(self.rounds) / updates,
                "peak_memory_gb": self.rounds[-1].peak_memory_gb,
            }
        return described


def figures(contenders: Sequence[TrainingRates], matmul_rates: Sequence[float], updates: int) -> dict[str, Any]:
    """Returns rates, ratios and the roofline fraction."""
    by_name = {rates.name: rates for rates in contenders}
    ours = by_name[OURS]
    peers = [rates for rates in contenders if rates.name == MARIAN and not rates.failed]
    best = max(peers, key=lambda peer: peer.tokens_s or 0, default=None)
    flop_s = median(done.work.flop / done.seconds for done in ours.rounds)
    work = [done.work for done in ours.rounds]
    real_tokens = sum(done.source_tokens + done.target_tokens for done in work)
    return {
        "tokens_s": ours.tokens_s,
        **_ratio("ratio_torch", ours, by_name.get(TORCH)),
        **_ratio("ratio_best_peer", ours, best),
        **_ratio("ratio_in_ray", ours, by_name.get(IN_RAY)),
        **_checkpoint_cost(ours, by_name.get(SAVING)),
        "best_peer": f"{best.name} {best.dtype}" if best else None,
        "roofline_fraction": flop_s / median(matmul_rates),
        "counted_flop_s": flop_s,
        "matmul_flop_s": median(matmul_rates),
        "padding_fraction": 1 - real_tokens / sum(done.padded_tokens for done in work),
        "peak_memory_gb": ours.rounds[-1].peak_memory_gb,
        "contenders": [rates.described(updates) for rates in contenders],
    }


def _checkpoint_cost(ours: TrainingRates, saving: TrainingRates | None) -> dict[str, Any]:
    """Returns the median seconds that a checkpoint adds to a round, and their share of the checkpoint interval."""
    if not saving or saving.failed:
        return {"checkpoint_s": None, "checkpoint_fraction": None}
    added_s = median(
        with_one.seconds - without.seconds for with_one, without in zip(saving.rounds, ours.rounds, strict=True)
    )
    return {"checkpoint_s": added_s, "checkpoint_fraction": added_s / CHECKPOINT_INTERVAL_S}


def _ratio(name: str, ours: TrainingRates, peer: TrainingRates | None) -> dict[str, Any]:
    return ratio(name, ours.tokens_s_by_round, peer.tokens_s_by_round if peer and not peer.failed else [])


def print_table(result: dict[str, Any]) -> None:
    """Prints the result of `measure` for people to read."""
    ours_s = result["tokens_s"]
    parts = f" in {result['micro_batches']} micro-batches" if result["micro_batches"] > 1 else ""
    title = (
        f"{result['size']}, {result['lengths']} lengths, {result['batch_tokens']} tokens per update{parts}, "
        f"vocabulary {result['vocabulary_size']}, {result['device_name']}"
        + (", compiled layers" if result["compiled"] else "")
    )
    table = Table(title=title + (f", {result['threads']} threads" if result["device"] == "cpu" else ""))
    table.add_column("training loop")
    table.add_column("type")
    for heading in ("target tokens/s", "spread", "ours is faster by", "s/update", "peak memory, GB"):
        table.add_column(heading, justify="right")
    for entry in result["contenders"]:
        if entry["failed"]:
            table.add_row(entry["name"], entry["dtype"], entry["failed"], *[""] * 4)
            continue
        low, high = entry["tokens_s_spread"]
        table.add_row(
            entry["name"],
            entry["dtype"],
            f"{entry['tokens_s']:.0f}",
            f"{low:.0f} to {high:.0f}",
            f"{ours_s / entry['tokens_s']:.2f}",
            f"{entry['update_s']:.3g}",
            f"{entry['peak_memory_gb']:.2f}",
        )
    console.print(table)
    console.print(
        f"{result['roofline_fraction']:.0%} of the roofline: {result['counted_flop_s'] / 1e9:.1f} GFLOP/s in matrix "
        f"products that real tokens need, against {result['matmul_flop_s'] / 1e9:.1f} in a large {result['dtype']} "
        f"product; {result['padding_fraction']:.1%} of the computed tokens are padding",
        highlight=False,
        soft_wrap=True,
    )
    if profile := result.get("profile"):
        busiest = profile["operations"][:PRINTED_OPERATIONS]
        shares = ", ".join(f"{one['name'][:60]} {one['seconds'] / profile['operations_s']:.0%}" for one in busiest)
        console.print(
            f"profile of {profile['updates']} updates in {profile['file']}: {profile['operations_s']:.3g} s of "
            f"operations in {profile['seconds']:.3g} s; {shares}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    if result["checkpoint_s"] is not None:
        console.print(
            f"a checkpoint adds {result['checkpoint_s']:.2f} s: {result['checkpoint_fraction']:.2%} of the "
            f"{CHECKPOINT_INTERVAL_S / 60:.0f} minutes between checkpoints",
            highlight=False,
            soft_wrap=True,
        )
