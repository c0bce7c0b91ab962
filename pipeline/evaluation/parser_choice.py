"""Chooses a parser and its beam on the dev set by F1 (§6.3), and decodes with it.

parser = choose(Context(folder), candidates, corpus, PARSING, beam_sizes=[1, 4, 21])
hypotheses = decode_chosen(Context(other), parser, corpus, ["test"])
"""

import shutil
from collections.abc import Sequence

from pipeline.evaluation.dev_scores import DEV, scores_of
from pipeline.evaluation.tree_scores import ScoredTrees
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import MANIFEST, Context
from pipeline.store.artifacts import CHOICE_FILE, Checkpoint, ChosenParser, Corpus, Hypotheses
from pipeline.store.figures import ChoiceFigures


def choose(
    context: Context,
    candidates: Sequence[tuple[str, Checkpoint, ScoredTrees]],
    corpus: Corpus,
    settings: DecodingSettings,
    beam_sizes: Sequence[int],
) -> ChosenParser:
    """Copies the candidate with the best F1 on the dev set, the first of several; then chooses its beam likewise.

    A candidate is its name, its checkpoint and its scores on the dev set. `settings` are the search that the candidates
    were scored with; the dev set of `corpus` is decoded again with each other beam. Raises UserError where it cannot be
    decoded or scored.
    """
    f1 = {name: scores.load().splits[DEV].total.f1 for name, _, scores in candidates}
    best, checkpoint, _ = max(candidates, key=lambda candidate: f1[candidate[0]])
    beams = {}
    for done, beam_size in enumerate(sorted({*beam_sizes, settings.beam_size}), start=1):
        if beam_size == settings.beam_size:
            beams[beam_size] = f1[best]
        else:
            search = settings.model_copy(update={"beam_size": beam_size})
            beams[beam_size] = scores_of(context, checkpoint, corpus, search)["dev_f1"]
        context.progress(done, len({*beam_sizes, settings.beam_size}), "beams")
    chosen_beam = max(beams, key=lambda beam_size: beams[beam_size])
    for file in checkpoint.folder.iterdir():
        if file.name != MANIFEST:
            shutil.copyfile(file, context.folder / file.name)
    chosen = settings.model_copy(update={"beam_size": chosen_beam})
    figures = ChoiceFigures(model=best, models=f1, beams=beams, settings=chosen)
    parser = ChosenParser(context.folder)
    parser.write_json(CHOICE_FILE, figures.model_dump(mode="json"))
    return parser


def decode_chosen(
    context: Context, parser: ChosenParser, corpus: Corpus, settings: DecodingSettings, splits: Sequence[str]
) -> Hypotheses:
    """Decodes `splits` by `settings`, but with the beam, length penalty and greatest length that were chosen."""
    from pipeline.evaluation.decoding import decode  # torch is slow to import, and declaring the stage does not need it

    return decode(context, parser, corpus, settings.searching_like(parser.choice.settings), splits)
