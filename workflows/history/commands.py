"""Writes the commands that repeat a run's stages, one at a time, from what their manifests say.

A stage that `aiayn` has a command for is repeated beside the store. Any other is repeated in it: its folder is removed
with all that was made from it, and the workflow's command makes them again; where that would remove a training, the
workflow is run in a store of its own instead.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.errors import UserError
from pipeline.settings import DecodingSettings, Settings, not_in_fingerprint
from pipeline.store.artifact import Artifact
from pipeline.store.artifacts import Corpus
from workflows.history.records import StageRecord, dependents
from workflows.profiles import load_profile


class Invocation(Settings):
    """How a workflow was called; no two ways of asking for the same make a difference to what is made."""

    command: str = not_in_fingerprint("")
    """The command line, without what does not change the results; empty where it is not known."""
    shared: str = not_in_fingerprint("")
    """Those of its options that `aiayn prepare` has, too: the profile and what was changed."""
    store: str = not_in_fingerprint("runs")
    """The folder or URI given by `--store`, as one would type it."""

    @property
    def is_in_bucket(self) -> bool:
        """Whether no folder can be named."""
        return "://" in self.store

    @property
    def in_its_store(self) -> str:
        """The command line that continues what is in the store."""
        return self.command + ("" if self.store == "runs" else f" --store {shlex.quote(self.store)}")


UNKNOWN = Invocation()
"""That of a workflow which was called from Python."""
TRAIN = "training.train"
PREPARED = ("cleaning.clean", "vocabulary.learn", "encoding.encode", "corpus_report.report_corpus")
"""The stages that `aiayn prepare` runs, but for the one that provides the text."""
DECODING_OPTIONS = ("beam_size", "length_penalty", "max_extra_tokens", "precision")
"""The settings of a decoding that are options of `aiayn translate`."""


def repeat_commands(records: Sequence[StageRecord], invocation: Invocation, table: str) -> dict[str, str]:
    """Returns for each stage, by fingerprint, the command that repeats it; `table` is the folder of the workflow's."""
    known = {record.fingerprint: record for record in records}
    store = f"{shlex.quote(invocation.store)}/store"
    commands = {}
    for record in records:
        own = None if invocation.is_in_bucket else OWN.get(record.stage)
        command = own(record, known, store) if own else _prepare(record, invocation)
        commands[record.fingerprint] = command or _again(record, records, invocation, table)
    return commands


def _again(record: StageRecord, records: Sequence[StageRecord], invocation: Invocation, table: str) -> str:
    """Removes a stage's folder and those of all that was made from it, and runs the workflow."""
    removed = [record, *dependents(record, records)]
    if invocation.is_in_bucket or any(one.stage == TRAIN for one in removed):
        return f"{invocation.command} --store runs-again"
    store = f"{shlex.quote(invocation.store)}/store"
    folders = " ".join(f"{store}/{name}" for name in [*(one.folder.name for one in removed), table])
    return f"rm -r {folders} && {invocation.in_its_store}"


def _prepare(record: StageRecord, invocation: Invocation) -> str | None:
    """Makes the text of a language pair again, from the corpus to the token ids."""
    if record.stage not in PREPARED and record.inputs:
        return None
    described = record.folder / "corpus.json"
    if record.stage in PREPARED and not described.exists():
        described = next(iter(record.folder.parent.glob(f"cleaning-{_first(record)}/corpus.json")), described)
    if not described.exists() or (described.parent / "symbols.txt").exists():
        return None  # trees have no command of their own
    pair = "-".join(Corpus(described.parent).languages)
    return f"aiayn prepare{invocation.shared and ' ' + invocation.shared} --pair {pair} --out prepared-again"


def _first(record: StageRecord) -> str:
    return next(iter(record.inputs.values()), "")


Known = Mapping[str, StageRecord]


def _train(record: StageRecord, known: Known, store: str) -> str | None:
    """Names what differs from the recipe that `aiayn train` takes by itself."""
    encoded = _input(record, known, "encoding.encode")
    if encoded is None or len(record.settings) != 1:
        return None
    described = Artifact(encoded.folder).read_json("dataset.json")
    try:
        profile = load_profile(None, overrides=[f"vocabulary.size={described['vocabulary_size']}"])
        usual = profile.for_pair("-".join(described["languages"])).recipes["base"].training
    except (UserError, KeyError):
        return None
    changes = _changes(usual.model_dump(mode="json"), record.settings[0])
    options = "".join(f" --set {shlex.quote(f'recipes.base.training.{change}')}" for change in changes)
    return f"aiayn train {store}/{encoded.folder.name} --out training-again{options}"


def _changes(usual: Mapping[str, Any], given: Mapping[str, Any], prefix: str = "") -> list[str]:
    changes = []
    for name, value in given.items():
        if isinstance(value, Mapping):
            changes += _changes(usual.get(name, {}), value, f"{prefix}{name}.")
        elif usual.get(name) != value and value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            changes.append(f"{prefix}{name}={text}")
    return changes


def _average(record: StageRecord, known: Known, store: str) -> str | None:
    training = _input(record, known, "training.train")
    if training is None or not record.settings:
        return None
    return f"aiayn average {store}/{training.folder.name} --out model-again --last {record.settings[0]['last']}"


def _translate(record: StageRecord, known: Known, store: str) -> str | None:
    """Translates the main test set; the settings stand as options where they are not the usual ones."""
    checkpoint, corpus = _input(record, known, "averaging.average"), _input(record, known, "cleaning.clean")
    if checkpoint is None or corpus is None or not record.settings or Corpus(corpus.folder).symbols:
        return None  # trees are parsed with the gold trees' tags, which `aiayn parse` does without
    made = Artifact(record.folder).read_json("decoding.json")
    test_set, (source, target) = next(iter(made["test_sets"])), Corpus(corpus.folder).languages
    usual, given = DecodingSettings().model_dump(mode="json"), record.settings[0]
    options = "".join(
        f" --{name.replace('_', '-')} {given[name]}" for name in DECODING_OPTIONS if given.get(name) != usual[name]
    )
    model, text = f"{store}/{checkpoint.folder.name}", _side(corpus, store, test_set, source)
    return f"aiayn translate {model}{options} < {text} > {test_set}.{target}"


def _score(record: StageRecord, known: Known, store: str) -> str | None:
    corpus = _input(record, known, "cleaning.clean")
    hypotheses = _input(record, known, "decoding.decode") or _input(record, known, "embedded.substitute")
    if corpus is None or hypotheses is None:
        return None
    test_set = next(iter(Artifact(record.folder).read_json("scores.json")["test_sets"]))
    language = Corpus(corpus.folder).languages[1]
    reference = _side(corpus, store, test_set, language)
    return (
        f"aiayn score --hyp {store}/{hypotheses.folder.name}/{test_set}.{language} --ref {reference} --lang {language}"
    )


def _score_trees(record: StageRecord, known: Known, store: str) -> str | None:
    parses = _input(record, known, "parses.rebuild_parses") or _input(record, known, "right_branching.parse")
    if parses is None:
        return None
    split = next(iter(Artifact(record.folder).read_json("tree_scores.json")["splits"]))
    folder = f"{store}/{parses.folder.name}"
    return f"aiayn score-trees --gold {folder}/{split}.gold --test {folder}/{split}.trees"


def _side(corpus: StageRecord, store: str, split: str, language: str) -> str:
    """Returns the path of one language's side of a split, which is one shard but for training text."""
    path = Corpus(corpus.folder).shard_path(split, 0, language).relative_to(corpus.folder)
    return f"{store}/{corpus.folder.name}/{path}"


def _input(record: StageRecord, known: Known, stage: str) -> StageRecord | None:
    inputs = (known.get(fingerprint) for fingerprint in record.inputs.values())
    return next((one for one in inputs if one and one.stage == stage), None)


OWN: Mapping[str, Callable[[StageRecord, Known, str], str | None]] = {
    TRAIN: _train,
    "averaging.average": _average,
    "decoding.decode": _translate,
    "scoring.score": _score,
    "tree_scores.score_parses": _score_trees,
}
"""The stages that `aiayn` has a command for, by name."""
