"""Chooses a search on the dev set: by BLEU for translators (§6.1), by F1 for parsers (§6.3).

choice = choose(Context(folder), checkpoint, dev, DecodingSettings(), beam_sizes=[1, 4], length_penalties=[0, 0.6])
hypotheses = decode(Context(other), checkpoint, test_set, DecodingSettings(), choice)
parser = choose_parser(Context(third), candidates, dev_trees, PARSING, beam_sizes=[1, 4, 21])
hypotheses = decode(Context(fourth), parser, test_trees, PARSING, parser)
"""

import shutil
from collections.abc import Iterator, Sequence
from itertools import product

from pipeline.artifacts import CHOICE_FILE, Checkpoint, ChosenParser, EvaluationSet
from pipeline.context import Context
from pipeline.evaluation.dev_scores import scores_of
from pipeline.evaluation.tree_scores import ScoredTrees
from pipeline.records import ChoiceRecord, Record
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import MANIFEST, JsonArtifact


class SearchScores(Record):
    """Dev-set scores of one search, in percent."""

    beam_size: int
    length_penalty: float
    dev_paper_bleu: float | None = None
    """None if not defined (`BleuScores`)."""
    dev_sacrebleu: float

    @property
    def deciding(self) -> tuple[str, float]:
        """The name and value of the score by which searches are compared."""
        if self.dev_paper_bleu is None:
            return "dev_sacrebleu", self.dev_sacrebleu
        return "dev_paper_bleu", self.dev_paper_bleu


class DecodingChoiceRecord(Record):
    """`decoding_choice.json`: the chosen search and the candidates."""

    scores: tuple[SearchScores, ...]
    """Ordered by beam size, then length penalty."""
    settings: DecodingSettings
    """With the chosen beam and length penalty."""

    @property
    def best(self) -> SearchScores:
        """The scores of the chosen search."""
        chosen = self.settings.beam_size, self.settings.length_penalty
        return next(search for search in self.scores if (search.beam_size, search.length_penalty) == chosen)


class DecodingChoice(JsonArtifact[DecodingChoiceRecord]):
    """`decoding_choice.json`; decoded text is not kept."""

    record_file = "decoding_choice.json"

    @property
    def search(self) -> DecodingSettings:
        """The settings with the chosen search."""
        return self.load().settings

    @property
    def summary(self) -> str:
        """The chosen search and its score."""
        best = self.load().best
        name, score = best.deciding
        return f"beam {best.beam_size}, α {best.length_penalty:g}: {name} {score:.2f}"


def choose(
    context: Context,
    model: Checkpoint,
    dev: EvaluationSet,
    settings: DecodingSettings,
    beam_sizes: Sequence[int],
    length_penalties: Sequence[float],
) -> DecodingChoice:
    """Decodes the dev set with each beam and length penalty, and chooses the search with the best BLEU.

    BLEU is Moses BLEU, or sacreBLEU if that is not defined. The search of `settings` is always a candidate. It wins
    ties; else the smallest beam, then the smallest penalty does. Raises UserError if the dev set cannot be decoded or
    scored.
    """
    default = settings.beam_size, settings.length_penalty
    grid = sorted({default, *product(beam_sizes, length_penalties)})
    searches = [{"beam_size": beam_size, "length_penalty": length_penalty} for beam_size, length_penalty in grid]
    searched = _scores(context, model, dev, [settings.model_copy(update=search) for search in searches], "searches")
    scores = [SearchScores(**search, **bleu) for search, bleu in zip(searches, searched, strict=True)]

    best = max(scores, key=lambda one: (one.deciding[1], (one.beam_size, one.length_penalty) == default))
    chosen = settings.model_copy(update={"beam_size": best.beam_size, "length_penalty": best.length_penalty})
    return DecodingChoice(context.folder).write(DecodingChoiceRecord(scores=tuple(scores), settings=chosen))


def choose_parser(
    context: Context,
    candidates: Sequence[tuple[str, Checkpoint, ScoredTrees]],
    dev: EvaluationSet,
    settings: DecodingSettings,
    beam_sizes: Sequence[int],
) -> ChosenParser:
    """Copies the first candidate with the best F1 on the dev set, then chooses its beam in the same way.

    A candidate is a name, a checkpoint and its dev-set scores, obtained with the search of `settings`; `dev` is decoded
    again with each other beam. Raises UserError if it cannot be decoded or scored.
    """
    f1 = {name: scores.load().total.f1 for name, _, scores in candidates}
    best, checkpoint, _ = max(candidates, key=lambda candidate: f1[candidate[0]])
    others = sorted({*beam_sizes} - {settings.beam_size})
    searches = [settings.model_copy(update={"beam_size": beam_size}) for beam_size in others]
    scores = _scores(context, checkpoint, dev, searches, "beams")
    beams = {settings.beam_size: f1[best]}
    beams |= {beam_size: score["dev_f1"] for beam_size, score in zip(others, scores, strict=True)}
    chosen_beam = max(sorted(beams), key=lambda beam_size: beams[beam_size])
    for file in checkpoint.folder.glob("[!.]*"):
        if file.name != MANIFEST:
            shutil.copyfile(file, context.folder / file.name)
    chosen = settings.model_copy(update={"beam_size": chosen_beam})
    record = ChoiceRecord(model=best, models=f1, beams=dict(sorted(beams.items())), settings=chosen)
    parser = ChosenParser(context.folder)
    parser.write_json(CHOICE_FILE, record.model_dump(mode="json"))
    return parser


def _scores(
    context: Context, model: Checkpoint, dev: EvaluationSet, searches: Sequence[DecodingSettings], unit: str
) -> Iterator[dict[str, float]]:
    """Yields the dev-set scores of each search, by the same actors; reports progress."""
    from pipeline.evaluation.decoding import Translators  # Ray is slow to import, and the artifact does not need it

    if searches:
        with Translators(context, searches[0]) as translators:
            for done, search in enumerate(searches, start=1):
                yield scores_of(context, model, dev, search, translators)
                context.progress(done, len(searches), unit)
