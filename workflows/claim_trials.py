"""The runs that claims need beside the tables, as steps of the DAG, with several seeds each.

Averaging (§6.1) and heads (Figure 4): base of Table 2; the first seed is the table's run. Extrapolation (§3.5): base
and row E of Table 3, trained on short sentences only. Attention functions (§3.2.1): small models, at several rates.
Competitors (abstract, §7): base and the recurrent and convolutional models. Paths (§4): networks of each layer type.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product

from pipeline.attention.records import Relations, RelationSettings
from pipeline.complexity import attention_training
from pipeline.complexity.attention_training import AttentionTraining
from pipeline.complexity.layer_types.sizes import ATTENTION_FUNCTIONS
from pipeline.complexity.recall import DISTANCES, RECALLING, Recall, RecallSettings
from pipeline.corpora.embedded import GeneratedText
from pipeline.evaluation import perplexity
from pipeline.evaluation.perplexity import LengthPerplexity, Perplexity
from pipeline.evaluation.search_choice import DecodingChoice
from pipeline.settings import DecodingSettings, TrainingSettings
from pipeline.store.artifacts import TrainingRun
from pipeline.training.speed import TrainingSpeed
from workflows import stages
from workflows.claims.competitors import MODELS
from workflows.claims.translators import ALL_LENGTHS, LEARNED, SINUSOIDS
from workflows.engine.dag import Imported, Stage, Step
from workflows.profiles.attention import RATES, WIDTHS, attention_settings
from workflows.profiles.profile import Profile, Recipe, SearchGrid
from workflows.tables.claims import Trial
from workflows.tables.table3_rows import rows
from workflows.trials import LAST_CHECKPOINT, trials_of

TRAIN_ATTENTION = Stage(
    "attention_training.train", attention_training.train, AttentionTraining, computes=True, resumes=True
)
RECALL = Stage("recall.measure", Imported("pipeline.complexity.recall:measure"), Recall, computes=True)
TIME_TRAINING = Stage(
    "training_speed.time", Imported("pipeline.training.speed:time_"), TrainingSpeed, gpus=1, computes=True
)
LENGTH_PERPLEXITY = Stage(
    "length_perplexity.measure", perplexity.measure_by_length, LengthPerplexity, version=3, gpus=1, computes=True
)


@dataclass(frozen=True)
class Seeded:
    """Runs of a model of Table 2 with several seeds, and their text."""

    text: stages.Prepared
    recipe: Recipe
    decoding: DecodingSettings
    trainings: Mapping[str, Step[TrainingRun]]
    """By name."""


def seeded(profile: Profile, pair: str, model: str) -> Seeded:
    """Returns runs of a model that differ only in their seeds."""
    profile = profile.for_pair(pair)
    text, recipe = stages.prepared(profile, pair), profile.recipes[model]
    trainings = {}
    for seed in _seeds(profile, recipe.training):
        name = f"{model} seed {seed}"
        settings = recipe.training.model_copy(update={"seed": seed})
        trainings[name] = stages.TRAIN(f"train {name}", text.dataset, settings)
    return Seeded(text, recipe, profile.decoding.beside(recipe.training), trainings)


def averaging(of: Seeded, model: str, choice: SearchGrid) -> list[Trial[DecodingChoice]]:
    """Returns one trial per run: its last checkpoint's dev scores, and the search chosen for the averaged model."""
    trials = []
    for seed, training in of.trainings.items():
        name = f"averaging {seed}"
        last = stages.evaluated(of.text, name, training, LAST_CHECKPOINT, of.decoding, on_dev=True)
        average = stages.AVERAGE(f"average {seed}", training, of.recipe.averaging)
        grid = choice.beam_sizes, choice.length_penalties
        chosen = stages.CHOOSE_DECODING(f"choose {name}", average, of.text.dev, of.decoding, *grid)
        trials.append(Trial("averaging", name, replace(last, model=model), chosen))
    return trials


def heads(of: Seeded, model: str, text: GeneratedText) -> list[Trial[Relations]]:
    """Returns one trial per run: the words that the averaged model's heads relate, in generated text."""
    trials = []
    for seed, training in of.trainings.items():
        name = f"heads {seed}"
        evaluation = stages.evaluated(of.text, name, training, of.recipe.averaging, of.decoding, on_dev=True)
        measured = stages.MEASURE_RELATIONS(f"relations {seed}", evaluation.checkpoint, text, RelationSettings())
        trials.append(Trial("heads", name, replace(evaluation, model=model), measured))
    return trials


def competes(profile: Profile, pair: str) -> bool:
    """Whether the profile has recipes for the Transformer and all its competitors."""
    return {*MODELS} <= profile.for_pair(pair).recipes.keys()


def training_speed(profile: Profile, pair: str) -> Step[TrainingSpeed]:
    """Returns the step that times updates of the Transformer and its competitors in turn, on reserved CPUs."""
    profile = profile.for_pair(pair)
    settings = [profile.recipes[model].training for model in MODELS]
    base = settings[0]
    timed = replace(TIME_TRAINING, cpus=max(1, base.threads), gpus=0 if base.device == "cpu" else 1)
    # Settings that affect speed but are not in a run's fingerprint.
    how = [base.device, base.threads, base.speed]
    return timed("time training", stages.prepared(profile, pair).dataset, settings, how)


def competitors(profile: Profile, pair: str) -> list[Trial[Perplexity]]:
    """Returns runs of the Transformer and its competitors."""
    trials = []
    for model in MODELS:
        of = seeded(profile, pair, model)
        for seed, training in of.trainings.items():
            name = f"competitors {seed}"
            last = stages.evaluated(of.text, name, training, LAST_CHECKPOINT, of.decoding, on_dev=True)
            trials.append(Trial(model, name, replace(last, model=model), last.perplexity))
    return trials


def grid_text(pair: str) -> str:
    """Returns the name of Table 3's text, which may differ from Table 2's."""
    return f"table3 {pair}"


def extrapolation(profile: Profile, pair: str) -> list[Trial[LengthPerplexity]]:
    """Returns runs on sentences of at most `claims.longest_tokens` tokens, with sinusoids and learned positions.

    Base of Table 3, trained on all lengths, is added for comparison. The dev set is the same for all and has all
    lengths.
    """
    profile, longest, n_seeds = profile.for_pair(pair).for_grid(), profile.claims.longest_tokens, profile.claims.seeds
    short = profile.model_copy(update={"encoding": profile.encoding.model_copy(update={"max_tokens": longest})})
    of_all = stages.prepared(profile, pair, grid_text(pair))
    of_short = stages.prepared(short, pair, f"{grid_text(pair)} up to {longest} tokens")
    kinds = {SINUSOIDS: (of_short, "base"), LEARNED: (of_short, "E"), ALL_LENGTHS: (of_all, "base")}
    trials = []
    for kind, (text, row) in kinds.items():
        of_row = trials_of(text, rows(profile.grid, row), n_seeds, profile.decoding)
        for trial in of_row:
            name = f"{kind} {trial.name}"
            measured = LENGTH_PERPLEXITY(f"lengths {name}", trial.evaluation.checkpoint, text.dev, longest)
            trials.append(Trial(kind, name, trial.evaluation, measured))
    return trials


def functions(profile: Profile, pair: str) -> list[Step[AttentionTraining]]:
    """Returns small runs of each attention function with each d_k: the first seed at each rate, others at the best."""
    profile = profile.for_pair(pair).for_grid()
    training, dataset = profile.grid.training, stages.prepared(profile, pair, grid_text(pair)).dataset
    first, *others = _seeds(profile, training)
    steps = []
    for d_k, function in product(WIDTHS, ATTENTION_FUNCTIONS):
        name = f"train {function} d_k {d_k}"
        tries = [
            TRAIN_ATTENTION(
                f"{name} rate {rate:g} seed {first}", dataset, function, attention_settings(training, d_k, rate, first)
            )
            for rate in RATES
        ]
        steps += tries
        for seed in others:
            settings = attention_settings(training, d_k, RATES[-1], seed)  # the stage replaces the rate
            steps.append(TRAIN_ATTENTION(f"{name} seed {seed}", dataset, function, settings, tries))
    return steps


def recall(settings: RecallSettings) -> list[Step[Recall]]:
    """Returns the steps that train each layer type for recall at each distance."""
    return [
        RECALL(f"recall over {distance} by {layer_type}", layer_type, distance, settings)
        for layer_type, distance in product(RECALLING, DISTANCES)
    ]


def _seeds(profile: Profile, training: TrainingSettings) -> range:
    return range(training.seed, training.seed + profile.claims.seeds)
