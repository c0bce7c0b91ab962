"""Writes the attention figures of a model: the stage of `workflows.attention_figures`."""

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field

from pipeline.artifacts import Checkpoint
from pipeline.attention import choice
from pipeline.attention.choice import Choice, Wanted
from pipeline.attention.translated import Attended, AttentionTranslator
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.records import Record
from pipeline.settings import DecodingSettings, Settings
from pipeline.store.artifact import JsonArtifact
from workflows.engine.dag import Stage
from workflows.figures.bundles import Panel, draw
from workflows.figures.page import render
from workflows.figures.trained import PRINTED_FIGURES

FigureNumber = Literal[3, 4, 5]
Choose = Callable[[Attended, Wanted], Choice]
CHOOSE: dict[FigureNumber, Choose] = {3: choice.all_heads, 4: choice.one_antecedent, 5: choice.two_heads}
"""The function that chooses heads and word, by figure number."""


class FigureSettings(Settings):
    """The model, its sentences, and the user's choice of layer, heads and words. Layers and heads count from 1."""

    name: str
    """The model's name in titles."""
    sentences: tuple[str, ...] = Field(min_length=1)
    layer: int | None = None
    heads: tuple[int, ...] = ()
    words: tuple[str, ...] = Field((), max_length=2)
    """The words of Figures 3 and 4, or one word for both."""
    decoding: DecodingSettings = DecodingSettings(dtype="float32")

    def wanted(self, number: FigureNumber) -> Wanted:
        """Returns the user's choice for a figure."""
        word = None if not self.words else self.words[0] if number == 3 else self.words[-1]
        return Wanted(self.layer, self.heads, word)


class DrawnFigure(Record):
    """One figure."""

    number: FigureNumber
    caption: str
    sentence: str
    translation: str
    layer: int
    """Counted from 1."""
    heads: tuple[int, ...]
    """Counted from 1."""
    word: str | None
    """The word whose attention is drawn; None for all."""


class DrawnFigures(Record):
    """`figures.json`."""

    model: str
    figures: tuple[DrawnFigure, ...]
    translations: dict[str, str]
    """Translations by sentence."""


class AttentionFigures(JsonArtifact[DrawnFigures]):
    """`figure3.svg` to `figure5.svg`, `attention.html` and `figures.json`."""

    record_file = "figures.json"

    @property
    def summary(self) -> str:
        """The numbers of the figures."""
        return f"figures {', '.join(str(figure.number) for figure in self.load().figures)}"


def draw_figures(context: Context, checkpoint: Checkpoint, settings: FigureSettings) -> AttentionFigures:
    """Translates the sentences in float32 on `context.device`, and writes the figures and the page.

    Raises UserError for a sentence that is empty or too long, and for a layer, head or word that does not exist.
    """
    translator = AttentionTranslator(checkpoint.folder, settings.decoding, context.device)
    sentences = [translator.attend(sentence) for sentence in settings.sentences]
    drawn = []
    for number, choose in CHOOSE.items():
        wanted = settings.wanted(number)
        sentence = _sentence_for(number, sentences, wanted)
        printed_sentence, printed_word = PRINTED_FIGURES.get(number, ("", ""))
        if wanted.word is None and sentence.sentence == printed_sentence:
            wanted = wanted._replace(word=printed_word, reason="the word is the paper's")
        chosen = choose(sentence, wanted)
        whole = [Panel(sentence, choice.KIND, chosen.layer, (head,), None) for head in chosen.heads]
        for_word = Panel(sentence, choice.KIND, chosen.layer, chosen.heads, chosen.word)
        panels = {3: [for_word], 4: [whole[0], for_word], 5: whole}[number]
        draw(panels, f"{settings.name}: encoder self-attention", context.folder / f"figure{number}")
        drawn.append(
            DrawnFigure(
                number=number,
                caption=_caption(number, sentence, chosen),
                sentence=sentence.sentence,
                translation=sentence.translation,
                layer=chosen.layer + 1,
                heads=tuple(head + 1 for head in chosen.heads),
                word=None if chosen.word is None else sentence.source.word(chosen.word),
            )
        )
        if number == 4:  # the page opens with its word and first head
            heads = chosen.heads if settings.heads else chosen.heads[:1]
            opened = {"sentence": sentences.index(sentence), "layer": chosen.layer, "heads": heads, "word": chosen.word}
        context.progress(len(drawn), len(CHOOSE), "figures")
    files = {figure.caption: context.folder / f"figure{figure.number}.svg" for figure in drawn}
    page = render(settings.name, sentences, settings.decoding, {"kind": choice.KIND, **opened}, files)
    (context.folder / "attention.html").write_text(page, encoding="utf-8")
    translations = {sentence.sentence: sentence.translation for sentence in sentences}
    record = DrawnFigures(model=settings.name, figures=tuple(drawn), translations=translations)
    return AttentionFigures(context.folder).write(record)


def _sentence_for(number: FigureNumber, attended: Sequence[Attended], wanted: Wanted) -> Attended:
    """Returns the sentence of a figure: like in the paper, the first for Figure 3 and the second for the others.

    If this sentence lacks the user's word, returns the first one with it. Raises UserError if no sentence has the word,
    or the model lacks the layer or a head.
    """
    problems = []
    for sentence in [attended[0 if number == 3 else min(1, len(attended) - 1)], *attended]:
        try:
            wanted.within(sentence)
            return sentence
        except UserError as error:
            problems.append(error)
    raise UserError(f"Figure {number}: {problems[0]}")


def _caption(number: FigureNumber, attended: Attended, chosen: Choice) -> str:
    heads = ", ".join(str(head + 1) for head in chosen.heads)
    is_whole_layer = len(chosen.heads) == attended.weights[choice.KIND].shape[1]
    where = f"layer {chosen.layer + 1} of {len(attended.weights[choice.KIND])}"
    word = "" if chosen.word is None else f"“{attended.source.word(chosen.word)}”"
    shown = {
        3: f"{'all heads' if is_whole_layer else f'heads {heads}'}, from the word {word}",
        4: f"head {chosen.heads[0] + 1} in full, and heads {heads} from {word}",
        5: f"heads {heads} in full",
    }[number]
    what = f"Figure {number}: encoder self-attention in {where}: {shown}"
    return f"{what}. {chosen.why[0].upper()}{chosen.why[1:]}. Translation: {attended.translation}"


def numbers(text: str) -> tuple[int, ...]:
    """Parses `1,3`. Raises UserError if it is not a list of numbers."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UserError(f"--heads {text}: write numbers separated by commas, e.g. 1,3")
    return tuple(dict.fromkeys(int(part) for part in parts))


DRAW = Stage("attention_figures.draw", draw_figures, AttentionFigures, gpus=1, follows_source=True)
