"""What a model was trained and searched with, in the paper's words: a page lists it, `differences` compares it.

facts(model)["optimizer"].text      # "β1 0.9, β2 0.98, ε 1e-09, warmup 400, ..."
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from pipeline.evaluation.costs import paper_device
from pipeline.parsing.linearisation import tagged
from pipeline.parsing.treebank import RECOMBINED_COLLECTION
from pipeline.settings import differing
from workflows import paper
from workflows.quantities import duration, rounded
from workflows.tables.measured import Measured
from workflows.tables.provenance import hardware

WSJ = "WSJ"
"""The `data` of a profile with the paper's treebank."""
MODEL = {
    "architecture": "",
    **paper.MODEL_SYMBOLS,
    "attention_window": "r of the encoder (0: no limit)",
    "attention_dropout": "dropout of attention weights",
    "attention": "attention function",
}
"""The fields of Table 3, and those that the paper only considers (§4) or uses only for parsing (§6.3)."""
SIZES = {name: MODEL[name] for name in ("architecture", "n_layers", "d_model", "d_ff", "dropout")}
"""Those that all architectures have."""
OPTIMIZER = {
    "beta_1": "β1",
    "beta_2": "β2",
    "epsilon": "ε",
    "warmup_steps": "warmup",
    "learning_rate_scale": "learning rate ×",
    "label_smoothing": "ε_ls",
}
ALIKE = "about the same"
"""How long the pairs of an update are in the paper (§5.1)."""
INITIALISATION = "as in the authors' code: uniform by Xavier, W_Q, W_K and W_V as one matrix"
SEARCH = {"beam_size": "beam", "length_penalty": "α", "max_extra_tokens": "output at most input +"}


@dataclass(frozen=True)
class Fact:
    """One aspect of an experiment: its settings are compared if the paper has any, else numbers of both, else texts."""

    text: str
    numbers: tuple[float, ...] = ()
    tolerance: float = 0.0
    """By how much of the paper's number another is still the same."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def against(self, here: "Fact") -> tuple[str, str] | None:
        """Returns what differs between the paper's fact and another, as texts for both; None if nothing does."""
        if self.settings:
            found = differing(self.settings, here.settings)
            there, ours = (_listed({name: values[side] for name, values in found.items()}) for side in (0, 1))
            return (there, ours) if found else None
        is_same = self.text == here.text
        if both := list(zip(self.numbers, here.numbers, strict=False)):
            near = all(abs(there - ours) <= self.tolerance * there for there, ours in both)
            is_same = near and len(self.numbers) == len(here.numbers)
        return None if is_same else (self.text, here.text)


def of_settings(names: Mapping[str, str], values: object, *without: str) -> Fact:
    """Returns settings as a fact, by the names shown: `N 6, h 8`."""
    settings = {symbol: getattr(values, name) for name, symbol in names.items() if name not in without}
    return Fact(_listed(settings), settings=settings)


def _listed(settings: Mapping[str, Any]) -> str:
    short = {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in settings.items()}
    return ", ".join(f"{symbol} {value}".strip() for symbol, value in short.items())


def facts(model: Measured) -> dict[str, Fact]:
    """Returns what a model was trained and searched with, in the paper's order."""
    run, config, updates = model.run, model.config, model.averaged_updates
    is_transformer, optimizer = config.architecture == "transformer", run.settings.optimizer
    tokens = run.source_tokens / run.updates, run.target_tokens / run.updates
    source, target = map(rounded, tokens)
    kept = [rounded(update) for update in updates]
    shown = ", ".join(kept if len(kept) < 4 else (kept[0], "…", *kept[-2:]))
    return {
        **(_of_trees(model) if model.trees else _of_text(model)),
        "vocabulary": Fact(f"{rounded(config.vocabulary_size)} joint byte-pair pieces", (config.vocabulary_size,)),
        **_of_preparation(model),
        "model": of_settings(MODEL if is_transformer else SIZES, config),
        "initialisation": Fact(INITIALISATION if is_transformer else "the architecture's"),
        "updates": Fact(rounded(run.updates), (run.updates,)),
        "tokens per update": Fact(f"{source} source and {target} target on average", tokens),
        "lengths in an update": Fact("all mixed" if run.settings.mixes_lengths else ALIKE),
        "optimizer": of_settings(OPTIMIZER, optimizer),
        **({"form of label smoothing": Fact("ε_ls / V on every piece, as cited")} if optimizer.label_smoothing else {}),
        "averaged checkpoints": Fact(
            f"last {len(updates)} (updates {shown})" if len(updates) > 1 else "none",
            (len(updates), *(after - before for before, after in pairwise(updates))),
        ),
        "search on the dev set" if model.trees else "decoding": of_settings(SEARCH, model.decoding.settings),
        "hardware": Fact(hardware(run, lambda name: f"NVIDIA {known}" if (known := paper_device(name)) else name)),
        "training time": Fact(f"{duration(run.train_s)}, {run.train_s / run.updates:.2g} s per update"),
    }


def _of_preparation(model: Measured) -> dict[str, Fact]:
    """Returns what was done to the text, of which the paper states little."""
    cleaning, vocabulary, encoding = model.cell.text_settings
    dropped = sum(model.corpus.report.get("dropped", {}).values())
    limits = f"over {cleaning.max_words:,} words", f"over {cleaning.max_ratio:g} times the other side"
    text = "words, a piece a symbol of a tree" if model.trees else "raw text"
    spelled = "256 pieces for bytes" if vocabulary.byte_fallback else "no pieces for bytes"
    return {
        "tokenisation": Fact(f"BPE by sentencepiece on {text}, {spelled}"),
        "cleaning": Fact(
            f"{rounded(dropped)} pairs dropped: {', '.join(('not UTF-8', 'blank', *limits, *cleaning.drop))}"
        ),
        "longest training sentence": Fact(f"{encoding.max_tokens} tokens"),
    }


def _of_text(model: Measured) -> dict[str, Fact]:
    pairs, is_papers = sum(model.corpus.shards), paper.CORPUS in model.cell.data
    is_named = model.test_set.name == "dev" and is_papers  # see pipeline.corpora.wmt14
    name = paper.VARIATION_TEST_SET if is_named else model.test_set.name
    return {
        "training data": Fact(f"{model.cell.data or 'unnamed data'}, {rounded(pairs)} pairs", (pairs,) * is_papers),
        "test set": Fact(f"{name}, {rounded(model.test_set.sentences)} sentences"),
    }


def _of_trees(model: Measured) -> dict[str, Fact]:
    """Returns the facts of a treebank, whose test set only the chosen candidate parses."""
    corpus, data = model.corpus, model.cell.data
    shards = zip(corpus.shards, corpus.collections, strict=True)
    trees, recombined = sum(corpus.shards), sum(n for n, collection in shards if collection == RECOMBINED_COLLECTION)
    further = f", and {rounded(recombined)} recombined of their constituents" * bool(recombined)
    is_papers = data == WSJ and not recombined
    writes_tags = any(symbol.startswith(tagged("")) for symbol in corpus.symbols)
    return {
        "training data": Fact(f"{data}, {rounded(trees - recombined)} trees{further}", (trees,) * is_papers),
        "symbol of a word": Fact("names the word's tag" if writes_tags else "the same for all words"),
        "test set": Fact("WSJ section 23" if data == WSJ else f"{data}, held out"),
    }
