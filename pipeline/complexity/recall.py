"""The stage that trains each layer type to recall a symbol seen n positions before (paper §4: the length of paths).

    measure(Context(folder), "self-attention", 32, RecallSettings()).load().nll

Each sequence holds one payload symbol at a random position. n positions later a query asks for it; all others hold
distractors. A network is a stack of layers of one type with residuals, as deep as it takes for the query to see the
payload, so types differ in the length of that path, and with it in layers and parameters. Chance is a negative
log-likelihood of ln 8.

Shapes: B sequences, L positions, D width, S symbols.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import Field

from pipeline.settings import Settings
from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.records import Record

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Recalling = Literal["self-attention", "dilated convolution", "restricted self-attention", "recurrence"]
RECALLING: tuple[Recalling, ...] = get_args(Recalling)
"""The rows of Table 1 by the length of their paths, shortest first; recurrence is an LSTM."""
DISTANCES = 8, 32, 96
"""Values of n."""
N_PAYLOADS, N_DISTRACTORS = 8, 16
QUERY = N_PAYLOADS + N_DISTRACTORS
FIRST_PAYLOADS = 8
"""The payload is at one of so many first positions."""
TEST_SEQUENCES = 1024


class RecallSettings(Settings):
    """Sizes of the networks and of their training with Adam."""

    width: int = 32
    n_heads: int = 4
    kernel: int = 3
    window: int = 32
    updates: int = Field(300, ge=1)
    batch: int = 32
    """Sequences an update."""
    rates: tuple[float, ...] = (0.001, 0.003, 0.01)
    """Learning rates: the best with the first seed counts."""
    seeds: int = Field(3, ge=1)
    """Seeds that count, beside the one that chooses the rate."""


class RecallRecord(Record):
    """`recall.json`: how well networks of one layer type recall over one distance."""

    layer_type: Recalling
    distance: int
    path_steps: int
    """Layers, or time steps, from the payload to the query."""
    parameters: int
    rate: float
    chosen_by: dict[float, float]
    """The first seed's NLL by learning rate."""
    nll: tuple[float, ...]
    """Nats a sequence on new sequences, of each seed that counts."""
    settings: RecallSettings


class Recall(JsonArtifact[RecallRecord]):
    """`recall.json`: how well networks of one layer type recall over one distance."""

    record_file = "recall.json"

    @property
    def summary(self) -> str:
        """The mean NLL."""
        nll = self.load().nll
        return f"{sum(nll) / len(nll):.3f} nats over {self.load().distance} positions"


def measure(context: Context, layer_type: Recalling, distance: int, settings: RecallSettings) -> Recall:
    """Trains networks on one CPU thread."""
    import torch

    threads_before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        first, nll = {}, []
        total = len(settings.rates) + settings.seeds
        for done, rate in enumerate(settings.rates):
            context.progress(done, total, "networks")
            model = network(layer_type, distance, settings, seed=0)
            first[rate] = _nll(model, distance, settings, rate, 0)
        best = min(first, key=first.__getitem__)
        for seed in range(1, settings.seeds + 1):
            context.progress(len(settings.rates) + seed - 1, total, "networks")
            nll.append(_nll(network(layer_type, distance, settings, seed), distance, settings, best, seed))
    finally:
        torch.set_num_threads(threads_before)
    return Recall(context.folder).write(
        RecallRecord(
            layer_type=layer_type,
            distance=distance,
            path_steps=distance if layer_type == "recurrence" else len(reaches(layer_type, distance, settings)),
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            rate=best,
            chosen_by=first,
            nll=tuple(nll),
            settings=settings,
        )
    )


def reaches(layer_type: Recalling, distance: int, settings: RecallSettings) -> list[int]:
    """Returns how many positions back each layer sees; together they see `distance` back."""
    match layer_type:
        case "dilated convolution":
            seen: list[int] = []
            while sum(seen) < distance:
                half = settings.kernel // 2  # of the kernel: by digits 0 to half, each distance without a detour
                seen.append(half * (half + 1) ** len(seen))
            return seen
        case "restricted self-attention":
            return [settings.window // 2] * -(-distance // (settings.window // 2))
        case _:
            return [distance]


def network(layer_type: Recalling, distance: int, settings: RecallSettings, seed: int) -> "nn.Module":
    """Builds a network from symbols_BL to the payload's logits at each position, logits_BLS, with seeded weights."""
    import torch
    from torch import nn

    from model.baselines.recurrent import lstm
    from pipeline.complexity.layer_types.modules import make, make_projected
    from pipeline.complexity.layer_types.sizes import LayerSizes

    class Lstm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = lstm(settings.width, settings.width)

        def forward(self, x_BLD: "Tensor") -> "Tensor":
            y_BLD: Tensor = self.network(x_BLD)[0]
            return y_BLD

    class Residual(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.norm, self.layer = nn.LayerNorm(settings.width), layer
            self.output = nn.Linear(settings.width, settings.width)

        def forward(self, x_BLD: "Tensor") -> "Tensor":
            y_BLD: Tensor = x_BLD + self.output(torch.relu(self.layer(self.norm(x_BLD))))
            return y_BLD

    def layers() -> Iterator[nn.Module]:
        for reach in reaches(layer_type, distance, settings):
            sizes = LayerSizes(
                settings.width,
                settings.kernel,
                settings.window,
                settings.n_heads,
                dilation=reach // (settings.kernel // 2) if layer_type == "dilated convolution" else 1,
            )
            match layer_type:
                case "dilated convolution":
                    yield make("convolutional", sizes)
                case "recurrence":
                    yield Lstm()
                case _:
                    yield make_projected(layer_type, sizes)

    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Embedding(QUERY + 1, settings.width),
        *map(Residual, layers()),
        nn.LayerNorm(settings.width),
        nn.Linear(settings.width, N_PAYLOADS),
    )


def sequences(n: int, distance: int, draw: "torch.Generator") -> "tuple[Tensor, Tensor, Tensor]":
    """Draws symbols_BL, the payload of each sequence, and where its query stands."""
    import torch

    symbols_BL = torch.randint(N_PAYLOADS, QUERY, (n, FIRST_PAYLOADS + distance), generator=draw)
    payload_B = torch.randint(N_PAYLOADS, (n,), generator=draw)
    at_B = torch.randint(FIRST_PAYLOADS, (n,), generator=draw)
    rows_B = torch.arange(n)
    symbols_BL[rows_B, at_B], symbols_BL[rows_B, at_B + distance] = payload_B, QUERY
    return symbols_BL, payload_B, at_B + distance


def _nll(model: "nn.Module", distance: int, settings: RecallSettings, rate: float, seed: int) -> float:
    """Trains a network; returns its NLL on new sequences, infinity if it diverged. Seed 0 has a test set of its own."""
    import torch
    from torch.nn import functional as F

    def loss(n: int, draw: torch.Generator) -> torch.Tensor:
        symbols_BL, payload_B, query_B = sequences(n, distance, draw)
        return F.cross_entropy(model(symbols_BL)[torch.arange(n), query_B], payload_B)

    draw = torch.Generator().manual_seed(seed + 2)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    for _ in range(settings.updates):
        optimizer.zero_grad()
        loss(settings.batch, draw).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        nll = loss(TEST_SEQUENCES, torch.Generator().manual_seed(int(seed > 0))).item()
    return nll if math.isfinite(nll) else math.inf
