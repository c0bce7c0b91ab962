"""The stages that tables are made of, in the paper's order: text (§5.1), training (§5.2-5.4), evaluation (§6.1).

torch, Ray and the other large libraries are imported by the stages that run on them, when they run. So it takes no time
to declare the stages, and where everything is cached, none of these libraries is imported.
"""

from dataclasses import dataclass

from pipeline.attention.figures import Heads, Relations
from pipeline.corpora import embedded, files, multi30k, wmt14
from pipeline.evaluation import costs, dev_scores, parses, perplexity, search_choice, tree_scores
from pipeline.parsing import treebank
from pipeline.settings import AveragingSettings, DecodingSettings, Settings
from pipeline.store.artifacts import (
    Checkpoint,
    ChosenParser,
    Corpus,
    CTranslate2Model,
    EncodedDataset,
    Hypotheses,
    Scores,
    TrainingRun,
    Vocabulary,
)
from pipeline.text import cleaning
from workflows.engine.dag import Imported, Stage, Step
from workflows.profiles.profile import Profile, SearchGrid
from workflows.reports.corpus import CorpusReport, report_corpus
from workflows.tables.measurements import Translation

GENERATE = Stage("embedded.generate", embedded.generate, Corpus, cpus=0)
READ_MULTI30K = Stage("multi30k.read", multi30k.read, Corpus, cpus=0)
READ_WMT14 = Stage("wmt14.read", wmt14.read, Corpus, cpus=0)
READ_FILES = Stage("files.read", files.read, Corpus, cpus=0)
READ_TREEBANK = Stage("treebank.read", treebank.read, Corpus, cpus=0)
SUBSTITUTE = Stage("embedded.substitute", embedded.substitute, Hypotheses)
CLEAN = Stage("cleaning.clean", cleaning.clean, Corpus, cpus=0)
LEARN_VOCABULARY = Stage("vocabulary.learn", Imported("pipeline.text.vocabulary:learn"), Vocabulary)
ENCODE = Stage("encoding.encode", Imported("pipeline.text.encoding:encode"), EncodedDataset, cpus=0)
REPORT = Stage("corpus_report.report_corpus", report_corpus, CorpusReport, cpus=0)
"""The report reserves no CPU, so that no training waits for it."""
TRAIN = Stage(
    "training.train", Imported("pipeline.training.on_ray:train"), TrainingRun, version=3, cpus=0, resumes=True
)
AVERAGE = Stage("averaging.average", Imported("pipeline.evaluation.averaging:average"), Checkpoint, computes=True)
EXPORT = Stage("exporting.export_ctranslate2", Imported("pipeline.export.ctranslate2:export"), CTranslate2Model)
DECODE = Stage("decoding.decode", Imported("pipeline.evaluation.decoding:decode"), Hypotheses, cpus=0)
CHOOSE_DECODING = Stage("decoding_choice.choose", search_choice.choose, search_choice.DecodingChoice, cpus=0)
DECODE_AS_CHOSEN = Stage("decoding.decode_chosen", search_choice.decode_chosen, Hypotheses, cpus=0)
SCORE = Stage("scoring.score", Imported("pipeline.evaluation.scoring:score"), Scores)
PERPLEXITY = Stage("perplexity.measure", perplexity.measure, perplexity.Perplexity, gpus=1, computes=True)
COST = Stage("costs.count", costs.count, costs.Cost)
REBUILD_PARSES = Stage("parses.rebuild_parses", parses.rebuild_parses, parses.Parses)
RIGHT_BRANCHING = Stage("right_branching.parse", parses.right_branching, parses.Parses)
SCORE_PARSES = Stage("tree_scores.score_parses", tree_scores.score_parses, tree_scores.ScoredTrees)
CHOOSE_PARSER = Stage("parser_choice.choose", search_choice.choose_parser, ChosenParser, cpus=0)
DECODE_CHOSEN = Stage("parser_decoding.decode", search_choice.parse_chosen, Hypotheses, cpus=0)
SCORE_CHECKPOINTS = Stage("dev_scores.measure", dev_scores.measure, dev_scores.DevScores, cpus=0)
EXAMINE_HEADS = Stage("heads.examine", Imported("pipeline.attention.heads:examine"), Heads, gpus=1)
MEASURE_RELATIONS = Stage("relations.measure", Imported("pipeline.attention.relations:measure"), Relations, gpus=1)


@dataclass(frozen=True)
class Prepared:
    """The cleaned text of a language pair, its token ids and a report on them, as steps of the DAG (§5.1)."""

    name: str
    """Tells the text from others of its pair, in the labels of steps."""
    pair: str
    data: str
    corpus: Step[Corpus]
    dataset: Step[EncodedDataset]
    report: Step[CorpusReport]


def prepared(profile: Profile, pair: str, name: str = "") -> Prepared:
    """Returns the steps from text to token ids that all models of a language pair share.

    Their labels have `name`, by default the pair: another for each text where a workflow has several of one pair.
    """
    profile, name = profile.for_pair(pair), name or pair
    text = corpus(name, profile.corpora[pair])
    clean = CLEAN(f"clean {name}", text, profile.cleaning)
    learned = LEARN_VOCABULARY(f"vocabulary {name}", clean, profile.vocabulary)
    dataset = ENCODE(f"encode {name}", clean, learned, profile.encoding)
    reported = report(f"report {name}", profile, clean, learned, dataset)
    return Prepared(name, pair, profile.data, clean, dataset, reported)


def report(
    label: str, profile: Profile, corpus: Step[Corpus], vocabulary: Step[Vocabulary], dataset: Step[EncodedDataset]
) -> Step[CorpusReport]:
    """Returns the step that reports on prepared text, with a plan for the profile's first recipe (§5.1)."""
    training = next(iter(profile.recipes.values())).training
    plan = [training.budget_tokens, training.micro_batches, training.seed]
    return REPORT(label, corpus, vocabulary, dataset, profile.data, plan)


def evaluated(
    text: Prepared,
    model: str,
    training: Step[TrainingRun],
    averaging: AveragingSettings,
    decoding: DecodingSettings,
    *,
    split: str = "",
    word_by_word: Step[Scores] | None = None,
    with_dev_scores: bool = False,
    chosen_from: SearchGrid | None = None,
) -> Translation:
    """Returns the steps that measure a training (§6.1), on the test sets or on another `split`.

    `with_dev_scores` adds the BLEU of every kept checkpoint on the dev set, searched by torch. `chosen_from` are
    searches of which one is chosen on the dev set; without it, the search is that of `decoding`.
    """
    name = f"{text.name} {model}"
    splits = ([split],) if split else ()
    checkpoint = AVERAGE(f"average {name}", training, averaging)
    translating = EXPORT(f"export {name}", checkpoint) if decoding.engine == "ctranslate2" else checkpoint
    choice = None
    if chosen_from:
        grid = chosen_from.beam_sizes, chosen_from.length_penalties
        choice = CHOOSE_DECODING(f"choose {name}", translating, text.corpus, decoding, *grid)
        hypotheses = DECODE_AS_CHOSEN(f"decode {name}", translating, text.corpus, decoding, choice, *splits)
    else:
        hypotheses = DECODE(f"decode {name}", translating, text.corpus, decoding, *splits)
    return Translation(
        text.pair,
        model,
        text.data,
        text.corpus,
        training,
        checkpoint,
        hypotheses,
        PERPLEXITY(f"perplexity {name}", checkpoint, text.dataset),
        COST(f"cost {name}", training),
        SCORE(f"score {name}", hypotheses, text.corpus, *splits),
        word_by_word,
        split,
        dev_scores=SCORE_CHECKPOINTS(f"dev scores {name}", training, text.corpus, decoding.on_torch)
        if with_dev_scores
        else None,
        decoding_choice=choice,
    )


def corpus(name: str, settings: Settings) -> Step[Corpus]:
    """Returns the step that provides a text, depending on the type of the corpus settings."""
    match settings:
        case embedded.EmbeddedSettings():
            return GENERATE(f"generate {name}", settings)
        case multi30k.Multi30kSettings():
            return READ_MULTI30K(f"read {name}", settings)
        case wmt14.Wmt14Settings():
            return READ_WMT14(f"read {name}", settings)
        case treebank.TreebankSettings():
            return READ_TREEBANK(f"read {name}", settings)
        case files.FilesSettings():
            return READ_FILES(f"read {name}", settings)
    raise TypeError(f"no stage reads {type(settings).__name__}")


def word_by_word(pair: str, settings: Settings, corpus: Step[Corpus]) -> Step[Scores] | None:
    """Returns the step that scores word-by-word substitution, or None if the corpus has no dictionary for it."""
    if not isinstance(settings, embedded.EmbeddedSettings) or settings.target == "trees":
        return None
    return SCORE(f"score {pair} words", SUBSTITUTE(f"substitute {pair} words", corpus), corpus)
