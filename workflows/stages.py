"""The stages behind the tables, in the paper's order: text (§5.1), training (§5.2-5.4), evaluation (§6.1).

    checkpoint = AVERAGE("average en-de base", training, AveragingSettings(last=5))    # a Step[Checkpoint], to run

A stage is a function with a name that stays; called, it returns a step of the DAG (`workflows.engine.dag`). Heavy
functions are `Imported` when they run, so a command whose steps are all cached loads neither torch nor Ray.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.artifacts import (
    Checkpoint,
    ChosenParser,
    Corpus,
    EncodedDataset,
    EvaluationSet,
    Hypotheses,
    Scores,
    TrainingRun,
    Vocabulary,
)
from pipeline.corpora import embedded, files, multi30k, wmt14
from pipeline.evaluation import costs, dev_scores, parses, perplexity, search_choice, tree_scores
from pipeline.parsing import treebank
from pipeline.settings import CleaningSettings, DecodingSettings, Settings, TrainingSettings
from pipeline.text import overlap
from workflows.engine.dag import A, Imported, Stage, Step
from workflows.profiles.profile import Profile, Recipe, SearchGrid
from workflows.tables.corpus import CorpusReport, report_corpus
from workflows.tables.measured import Cell

READERS: Mapping[type[Settings], tuple[str, int, Callable[..., Corpus], Callable[..., EvaluationSet]]] = {
    embedded.EmbeddedSettings: ("embedded.generate", 1, embedded.generate, embedded.generate_set),
    multi30k.Multi30kSettings: ("multi30k.read", 1, multi30k.read, multi30k.read_set),
    wmt14.Wmt14Settings: ("wmt14.read", 1, wmt14.read, wmt14.read_set),
    files.FilesSettings: ("files.read", 1, files.read, files.read_set),
    treebank.TreebankSettings: ("treebank.read", 3, treebank.read, treebank.read_set),
}
"""By class of a text's settings: its stages' name, a version, and the functions that read text and evaluation sets."""
SUBSTITUTE = Stage("embedded.substitute", embedded.substitute, Hypotheses, cpus=0)
LEARN_VOCABULARY = Stage("vocabulary.learn", Imported("pipeline.text.vocabulary:learn"), Vocabulary, version=2)
ENCODE = Stage("encoding.encode", Imported("pipeline.text.encoding:encode"), EncodedDataset, 2, cpus=0, resumes=True)
OVERLAP = Stage("overlap.count", overlap.count, overlap.Overlaps, cpus=0)
REPORT = Stage("corpus_report.report_corpus", report_corpus, CorpusReport, cpus=0)  # so that no run waits for it
TRAIN = Stage("training.train", Imported("pipeline.training.on_ray:train"), TrainingRun, version=7, cpus=0, trains=True)
AVERAGE = Stage(
    "averaging.average", Imported("pipeline.evaluation.averaging:average"), Checkpoint, cpus=0, computes=True
)
DECODE = Stage("decoding.decode", Imported("pipeline.evaluation.decoding:decode"), Hypotheses, version=2, cpus=0)
CHOOSE_DECODING = Stage("decoding_choice.choose", search_choice.choose, search_choice.DecodingChoice, cpus=0)
SCORE = Stage("scoring.score", Imported("pipeline.evaluation.scoring:score"), Scores, version=4)
PERPLEXITY = Stage("perplexity.measure", perplexity.measure, perplexity.Perplexity, version=2, gpus=1, computes=True)
COST = Stage("costs.count", costs.count, costs.Cost, cpus=0)
REBUILD_PARSES = Stage("parses.rebuild_parses", parses.rebuild_parses, parses.Parses, cpus=0)
RIGHT_BRANCHING = Stage("right_branching.parse", parses.right_branching, parses.Parses, cpus=0)
SCORE_PARSES = Stage("tree_scores.score_parses", tree_scores.score_parses, tree_scores.ScoredTrees, cpus=0)
CHOOSE_PARSER = Stage("parser_choice.choose", search_choice.choose_parser, ChosenParser, cpus=0)
SCORE_CHECKPOINTS = Stage("dev_scores.measure", dev_scores.measure, dev_scores.DevScores, cpus=0)


@dataclass(frozen=True)
class Prepared:
    """The text of a language pair, its token ids and a report on them, as steps of the DAG (§5.1)."""

    pair: str
    data: str
    corpus: Step[Corpus]
    """The training text."""
    dev: Step[EvaluationSet]
    test_sets: Mapping[str, Step[EvaluationSet]]
    """By name, the main one first."""
    vocabulary: Step[Vocabulary]
    dataset: Step[EncodedDataset]
    report: Step[CorpusReport]


def prepared(profile: Profile, pair: str, out: Path | None = None, rows: TrainingSettings | None = None) -> Prepared:
    """Returns the steps from text to token ids that a language pair's models share, and its test sets.

    With `out`, each artifact is a folder there, under a short name. The report is on the batches of the first recipe
    and on all evaluation sets, or for Table 3 on the batches of its `rows` and on the dev set, since it reads no other.
    """

    def placed(step: Step[A], folder: str) -> Step[A]:
        return replace(step, out=out / folder) if out else step

    profile = profile.for_pair(pair)
    text, sets = text_of(pair, profile.corpora[pair], profile.cleaning)
    test_sets = {each: placed(step, f"evaluation-{each}") for each, step in sets.items()}
    dev, corpus = test_sets.pop("dev"), placed(text, "corpus")
    learned = placed(LEARN_VOCABULARY(f"vocabulary {pair}", corpus, profile.vocabulary), "vocabulary")
    dataset = placed(ENCODE(f"encode {pair}", corpus, dev, learned, profile.encoding), "dataset")
    overlaps = placed(OVERLAP(f"overlap {pair}", corpus, [dev, *(() if rows else test_sets.values())]), "overlap")
    training = rows or next(iter(profile.recipes.values())).training
    batches = TrainingSettings(**training.model_dump(include={"budget_tokens", "mixes_lengths", "seed"}))
    report = placed(REPORT(f"report {pair}", corpus, learned, dataset, overlaps, profile.data, batches), "report")
    return Prepared(pair, profile.data, corpus, dev, test_sets, learned, dataset, report)


def trained(
    text: Prepared,
    model: str,
    recipe: Recipe,
    decoding: DecodingSettings,
    *,
    on_dev: bool = False,
    with_dev_scores: bool = False,
    of_trees: bool = False,
    chosen_from: SearchGrid | None = None,
) -> Cell:
    """Returns a run (§5.2) and its evaluation (§6.1) on the test sets, or if `on_dev` on the dev set only.

    `with_dev_scores` adds every kept checkpoint's score on the dev set, `of_trees` parses what was decoded (§6.3). With
    `chosen_from`, the search is chosen from this grid on the dev set; otherwise it is that of `decoding`.
    """
    name = f"{text.pair} {model}".strip()
    weights = name if model else f"{name} candidate"  # in a run's folder, the row's name is the chosen parser's
    decoding = decoding.beside(recipe.training)
    training = TRAIN(f"train {name}", text.dataset, recipe.training)
    checkpoint = AVERAGE(f"average {weights}", training, recipe.averaging)
    choice = dev_scores = parses = None
    if chosen_from:
        grid = chosen_from.beam_sizes, chosen_from.length_penalties
        choice = CHOOSE_DECODING(f"choose {name}", checkpoint, text.dev, decoding, *grid)
    if with_dev_scores:
        dev_scores = SCORE_CHECKPOINTS(f"dev scores {name}", training, text.dev, decoding)
    hypotheses, scores = list[Step[Hypotheses]](), list[Step[Any]]()
    sets = {"dev": text.dev} if on_dev else text.test_sets
    for set_name, text_set in sets.items():
        label = f" {set_name}" if scores else ""
        decoded = DECODE(f"decode {weights}{label}", checkpoint, text_set, decoding, *([choice] if choice else []))
        hypotheses.append(decoded)
        if of_trees:
            parses = REBUILD_PARSES(f"rebuild {name}", decoded, text_set)
        scored = SCORE_PARSES(f"score {name}", parses) if parses else SCORE(f"score {name}{label}", decoded, text_set)
        scores.append(scored)
    perplexity = replace(PERPLEXITY, gpus=recipe.training.gpus_per_worker)
    return Cell(
        pair=text.pair,
        model=model,
        data=text.data,
        recipe=recipe,
        text_settings=(text.corpus.arguments[-1], text.vocabulary.arguments[-1], text.dataset.arguments[-1]),
        corpus=text.corpus,
        training=training,
        checkpoint=checkpoint,
        test_set=next(iter(sets.values())),
        hypotheses=hypotheses[0],
        perplexity=perplexity(f"perplexity {name}", checkpoint, text.dev),
        cost=COST(f"cost {name}", training),
        dev_scores=dev_scores,
        parses=parses,
        scores=tuple(scores),
        decoding_choice=choice,
    )


def text_of(
    name: str, settings: Any, cleaning: CleaningSettings
) -> tuple[Step[Corpus], dict[str, Step[EvaluationSet]]]:
    """Returns the steps that read a text: training text, and dev and test sets by name, the main one first."""
    stage_name, version, read, read_set = READERS[type(settings)]
    label = f"{stage_name.partition('.')[2]} {name}"
    train, *sets = settings.texts()
    of_sets = Stage(f"evaluation_set.{stage_name}", read_set, EvaluationSet, version + 2, cpus=0)  # of normalisation
    steps = {each.name: of_sets(f"{label} {each.name}", each) for each in sets}
    return Stage(stage_name, read, Corpus, version + 1, cpus=0, resumes=True)(label, train, cleaning), steps


def word_by_word(text: Prepared, settings: Settings) -> Step[Scores] | None:
    """Returns the step that scores word-by-word substitution, or None if the text has no dictionary."""
    if not isinstance(settings, embedded.EmbeddedSettings) or settings.target == "trees":
        return None
    test_set = next(iter(text.test_sets.values()))
    return SCORE(f"score {text.pair} words", SUBSTITUTE(f"substitute {text.pair} words", test_set), test_set)
