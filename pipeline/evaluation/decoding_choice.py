"""Chooses a translator's beam and length penalty on the dev set by BLEU (§6.1), and decodes with them.

choice = choose(Context(folder), checkpoint, corpus, DecodingSettings(), beam_sizes=[1, 4], length_penalties=[0, 0.6])
hypotheses = decode_chosen(Context(other), checkpoint, corpus, DecodingSettings(), choice)
"""

from collections.abc import Sequence
from itertools import product

from pipeline.errors import UserError
from pipeline.evaluation.dev_scores import scores_of
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import Checkpoint, Corpus, CTranslate2Model, Hypotheses
from pipeline.store.figures import Figures


class SearchScores(Figures):
    """What the dev set scored, decoded by one search, in percent."""

    beam_size: int
    length_penalty: float
    dev_paper_bleu: float | None = None
    """None where it is not defined (`BleuScores`)."""
    dev_sacrebleu: float

    @property
    def deciding(self) -> tuple[str, float]:
        """The score by which searches are compared, and its name."""
        if self.dev_paper_bleu is None:
            return "dev_sacrebleu", self.dev_sacrebleu
        return "dev_paper_bleu", self.dev_paper_bleu


class DecodingChoiceFigures(Figures):
    """`decoding_choice.json`: the chosen search and what it was chosen from."""

    scores: tuple[SearchScores, ...]
    """By beam size, then by length penalty."""
    settings: DecodingSettings
    """With the beam and length penalty that were chosen."""

    @property
    def best(self) -> SearchScores:
        """The scores of the chosen search."""
        chosen = self.settings.beam_size, self.settings.length_penalty
        return next(search for search in self.scores if (search.beam_size, search.length_penalty) == chosen)


class DecodingChoice(JsonArtifact[DecodingChoiceFigures]):
    """`decoding_choice.json`; what was decoded to choose is not kept."""

    figures_file = "decoding_choice.json"

    @property
    def summary(self) -> str:
        """The chosen search and its score."""
        best = self.load().best
        name, score = best.deciding
        return f"beam {best.beam_size}, α {best.length_penalty:g}: {name} {score:.2f}"


def choose(
    context: Context,
    model: Checkpoint | CTranslate2Model,
    corpus: Corpus,
    settings: DecodingSettings,
    beam_sizes: Sequence[int],
    length_penalties: Sequence[float],
) -> DecodingChoice:
    """Decodes the dev set with each beam and each length penalty, and chooses those of the best BLEU.

    That is paper BLEU or, where it is not defined, sacreBLEU. The search by `settings` is always among them. Of several
    that are equally good it is chosen if it is one of them, or else the one with the smallest beam, then with the
    smallest penalty. Raises UserError where the dev set is of trees, or cannot be decoded or scored.
    """
    from pipeline.evaluation.decoding import Translators  # Ray is slow to import, and the artifact does not need it

    if corpus.symbols:
        raise UserError(f"{corpus.folder} has trees; a parser's search is chosen by workflows.reproduce_table4")
    default = settings.beam_size, settings.length_penalty
    grid = sorted({default, *product(beam_sizes, length_penalties)})
    scores = []
    with Translators(context, model, settings) as translators:
        for done, (beam_size, length_penalty) in enumerate(grid, start=1):
            search = {"beam_size": beam_size, "length_penalty": length_penalty}
            bleu = scores_of(context, model, corpus, settings.model_copy(update=search), translators)
            scores.append(SearchScores(**search, **bleu))
            context.progress(done, len(grid), "searches")

    def preference(search: SearchScores) -> tuple[float, bool]:
        return search.deciding[1], (search.beam_size, search.length_penalty) == default

    best = max(scores, key=preference)
    chosen = settings.model_copy(update={"beam_size": best.beam_size, "length_penalty": best.length_penalty})
    choice = DecodingChoice(context.folder)
    choice.write(DecodingChoiceFigures(scores=tuple(scores), settings=chosen))
    return choice


def decode_chosen(
    context: Context,
    model: Checkpoint | CTranslate2Model,
    corpus: Corpus,
    settings: DecodingSettings,
    choice: DecodingChoice,
    splits: Sequence[str] | None = None,
) -> Hypotheses:
    """Decodes `splits`, by default the test sets, by `settings`, but with the chosen beam and length penalty."""
    from pipeline.evaluation.decoding import decode  # Ray is slow to import, and declaring the stage does not need it

    return decode(context, model, corpus, settings.searching_like(choice.load().settings), splits)
