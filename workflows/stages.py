"""The stages that tables are made of, in the paper's order: text (§5.1), training (§5.2-5.4), evaluation (§6.1)."""

from dataclasses import dataclass
from typing import Any

from pipeline.corpora import embedded, files, multi30k, wmt14
from pipeline.evaluation import averaging, costs, decoding, perplexity, scoring
from pipeline.settings import AveragingSettings, DecodingSettings, Settings
from pipeline.store.artifacts import Checkpoint, Corpus, EncodedDataset, Hypotheses, Scores, TrainingRun, Vocabulary
from pipeline.text import cleaning, encoding, vocabulary
from pipeline.training import on_ray
from workflows.engine.dag import Stage, Step
from workflows.profiles import Profile
from workflows.reports.corpus import CorpusReport, report_corpus
from workflows.tables.measurements import MeasuredInputs

GENERATE = Stage("embedded.generate", embedded.generate, Corpus, version=2, cpus=0)
READ_MULTI30K = Stage("multi30k.read", multi30k.read, Corpus, version=2, cpus=0)
READ_WMT14 = Stage("wmt14.read", wmt14.read, Corpus, version=2, cpus=0)
READ_FILES = Stage("files.read", files.read, Corpus, version=2, cpus=0)
SUBSTITUTE = Stage("embedded.substitute", embedded.substitute, Hypotheses)
CLEAN = Stage("cleaning.clean", cleaning.clean, Corpus, version=2, cpus=0)
LEARN_VOCABULARY = Stage("vocabulary.learn", vocabulary.learn, Vocabulary, version=2)
ENCODE = Stage("encoding.encode", encoding.encode, EncodedDataset, version=2, cpus=0)
REPORT = Stage("corpus_report.report_corpus", report_corpus, CorpusReport, cpus=0)
"""Reserves no CPU, so that no training waits for it."""
TRAIN = Stage("training.train", on_ray.train, TrainingRun, version=2, cpus=0, resumes=True)
AVERAGE = Stage("averaging.average", averaging.average, Checkpoint)
DECODE = Stage("decoding.decode", decoding.decode, Hypotheses, cpus=0)
SCORE = Stage("scoring.score", scoring.score, Scores)
PERPLEXITY = Stage("perplexity.measure", perplexity.measure, perplexity.Perplexity)
COST = Stage("costs.count", costs.count, costs.Cost)


@dataclass(frozen=True)
class Prepared:
    """A language pair's text, cleaned, the same as token ids, and what it is like, as steps of the DAG (§5.1)."""

    pair: str
    data: str
    corpus: Step
    dataset: Step
    report: Step


def prepared(profile: Profile, pair: str) -> Prepared:
    """From text to token ids: what all models of a pair are trained on."""
    profile = profile.for_pair(pair)
    text = corpus(pair, profile.corpora[pair])
    clean = CLEAN(f"clean {pair}", text, profile.cleaning)
    learned = LEARN_VOCABULARY(f"vocabulary {pair}", clean, profile.vocabulary)
    dataset = ENCODE(f"encode {pair}", clean, learned, profile.encoding)
    return Prepared(pair, profile.data, clean, dataset, report(f"report {pair}", profile, clean, learned, dataset))


def report(label: str, profile: Profile, corpus: Step, vocabulary: Step, dataset: Step) -> Step:
    """What prepared text is like, planned for the profile's first recipe (§5.1)."""
    training = next(iter(profile.recipes.values())).training
    # Its numbers one by one, as they have always been: as one argument they would change the step's fingerprint.
    return REPORT(label, corpus, vocabulary, dataset, profile.data, *training.plan)


def evaluated(
    text: Prepared,
    model: str,
    training: Step,
    averaging: AveragingSettings,
    decoding: DecodingSettings,
    *,
    split: str = "",
    word_by_word: Step | None = None,
) -> MeasuredInputs:
    """What is measured of a training (§6.1), on the test sets or on one other `split`, as steps of the DAG."""
    name = f"{text.pair} {model}"
    splits = ([split],) if split else ()
    checkpoint = AVERAGE(f"average {name}", training, averaging)
    hypotheses = DECODE(f"decode {name}", checkpoint, text.corpus, decoding, *splits)
    steps: dict[str, Any] = {  # a step stands for what it will give
        "corpus": text.corpus,
        "run": training,
        "checkpoint": checkpoint,
        "hypotheses": hypotheses,
        "scores": SCORE(f"score {name}", hypotheses, text.corpus, *splits),
        "perplexity": PERPLEXITY(f"perplexity {name}", checkpoint, text.dataset),
        "cost": COST(f"cost {name}", training),
        "word_by_word": word_by_word,
    }
    return MeasuredInputs(text.pair, model, text.data, split=split, **steps)


def corpus(pair: str, settings: Settings) -> Step:
    """The step that gives a language pair's text, whichever corpus the settings are of."""
    match settings:
        case embedded.EmbeddedSettings():
            return GENERATE(f"generate {pair}", settings)
        case multi30k.Multi30kSettings():
            return READ_MULTI30K(f"read {pair}", settings)
        case wmt14.Wmt14Settings():
            return READ_WMT14(f"read {pair}", settings)
        case files.FilesSettings():
            return READ_FILES(f"read {pair}", settings)
    raise TypeError(f"no stage reads {type(settings).__name__}")


def word_by_word(pair: str, settings: Settings, corpus: Step) -> Step | None:
    """The scores of word-by-word substitution, where the corpus comes with the dictionary for it."""
    if not isinstance(settings, embedded.EmbeddedSettings) or settings.target == "trees":
        return None
    return SCORE(f"score {pair} words", SUBSTITUTE(f"substitute {pair} words", corpus), corpus)
