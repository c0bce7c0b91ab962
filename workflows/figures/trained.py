"""Finds a trained model and what the store knows of it: its dev set and its text.

newest(store), at(Path("model"), store)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.corpora.embedded import GeneratedText, held_out
from pipeline.corpora.grammar.references import anaphora
from pipeline.errors import UserError
from pipeline.store.artifact import MANIFEST
from pipeline.store.artifacts import Checkpoint, EvaluationSet
from pipeline.store.store import Store
from pipeline.text.lines import read_lines
from workflows.engine.dag import behind, inputs_of
from workflows.names import named_folder, store_beside

MODELS = ("averaging", "parser_choice")
"""How the folders of trained models begin in a store: of translators, then of parsers."""
PRINTED_FIGURES: Mapping[int, tuple[str, str]] = {
    3: (
        "It is in this spirit that a majority of American governments have passed new laws since 2009 making the "
        "registration or voting process more difficult.",
        "making",
    ),
    4: (
        "The Law will never be perfect, but its application should be just - this is what we are missing, in my "
        "opinion.",
        "its",
    ),
}
"""The paper's sentences of Figures 3 and 4, each with the word that it is drawn from. Figure 5 has Figure 4's."""
N_GENERATED, N_DEV = 3, 2
"""How many sentences are drawn of generated text, and of other text that is not English."""


@dataclass(frozen=True)
class ExaminedModel:
    """A model, and what it was made from as far as the store has it."""

    name: str
    checkpoint: Checkpoint
    dev: EvaluationSet | None = None
    generated: GeneratedText | None = None
    """The settings of its text, if that is the embedded corpus of translations."""

    def sentences(self) -> tuple[str, ...]:
        """Returns what to translate where the user gives nothing: the paper's sentences, or some of the model's text.

        A model of generated text gets unseen sentences with a pronoun far from its antecedent.
        """
        if self.generated:
            return _with_pronouns(self.generated)
        if self.dev and self.dev.load().source != "en":
            first = list(read_lines(self.dev.source))
            return tuple(line for line in first if 40 <= len(line) <= 160)[:N_DEV] or tuple(first[:1])
        return tuple(sentence for sentence, _ in PRINTED_FIGURES.values())


def newest(store: Store) -> ExaminedModel:
    """Returns the model of Table 2 that was made last; without any, the last translator, or else the last parser.

    Those of other tables are small, or trained on little. Raises UserError if the store has no model.
    """
    named = {link.resolve() for link in store.root.glob("table2/*/*/models/*")}
    found = [[manifest.parent for manifest in store.artifacts.glob(f"{kind}-*/{MANIFEST}")] for kind in MODELS]
    of_table2 = [folder for folder in found[0] if folder.resolve() in named]
    chosen: list[Path] = next(filter(None, (of_table2, *found)), [])
    if not chosen:
        raise UserError(f"{store.root} has no trained model; train one, or name its folder")
    checkpoints = [Checkpoint(folder) for folder in chosen]
    return _of_folder(max(checkpoints, key=lambda checkpoint: str(checkpoint.manifest["started"])).folder, store)


def at(folder: Path, store: Store) -> ExaminedModel:
    """Returns the model in a folder. Raises UserError if it holds none, or a damaged one."""
    folder = named_folder("average", folder, "model.safetensors")
    return _of_folder(folder, store_beside(folder, store))


def _of_folder(folder: Path, store: Store) -> ExaminedModel:
    checkpoint = Checkpoint(store.fetch(folder.name) if folder.parent == store.artifacts else folder)
    manifest, known = checkpoint.manifest, dict[str, Any]()
    for artifact in behind(store, inputs_of(manifest)):
        stage = artifact.manifest["stage"]
        if stage.startswith("evaluation_set."):
            known.setdefault("dev", EvaluationSet(store.fetch(artifact.folder.name)))
        elif stage == "embedded.generate" and "name" in (fields := artifact.manifest["settings"][0]):
            settings = GeneratedText(**fields)  # earlier versions had one text of all splits, which has no name
            known.setdefault("generated", None if settings.target == "trees" else settings)
    # A model is called as in the tables, `en-de base`, or like its folder.
    return ExaminedModel(str(manifest.get("label", "")).partition(" ")[2] or folder.name, checkpoint, **known)


def _with_pronouns(generated: GeneratedText) -> tuple[str, ...]:
    """Returns unseen sentences with a pronoun at least six words after its antecedent."""
    texts: list[str] = []
    for derivation in held_out(generated.seed, "test"):
        if pair := anaphora(derivation):
            pronoun, antecedent = pair
            if derivation.english.count(" ", antecedent.end, pronoun.begin) >= 6:
                texts.append(derivation.english)
        if len(texts) == N_GENERATED:
            break
    return tuple(texts)
