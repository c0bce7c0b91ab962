"""What the claims need trained beside the tables, as steps of the DAG, with several seeds each.

Averaging (§6.1): base of Table 2, whose first seed is the table's own. Extrapolation (§3.5): base and row E of Table 3,
trained on short sentences only. Attention functions (§3.2.1): a small model for each function and d_k.
"""

from dataclasses import replace
from itertools import product

from pipeline.complexity import attention_training
from pipeline.complexity.attention_training import AttentionTraining
from pipeline.complexity.layer_types.sizes import ATTENTION_FUNCTIONS
from pipeline.evaluation import perplexity
from pipeline.evaluation.perplexity import LengthPerplexity
from pipeline.evaluation.search_choice import DecodingChoice
from pipeline.settings import TrainingSettings
from workflows import stages
from workflows.claims.evidence import Trial
from workflows.claims.layers import ALL_LENGTHS, LEARNED, SINUSOIDS
from workflows.engine.dag import Stage, Step
from workflows.profiles.attention import WIDTHS, attention_settings
from workflows.profiles.profile import Profile
from workflows.tables.table3_rows import rows
from workflows.trials import LAST_CHECKPOINT, trials_of

TRAIN_ATTENTION = Stage(
    "attention_training.train", attention_training.train, AttentionTraining, computes=True, resumes=True
)
LENGTH_PERPLEXITY = Stage(
    "length_perplexity.measure", perplexity.measure_by_length, LengthPerplexity, version=3, gpus=1, computes=True
)
AVERAGING = "averaging"


def averaging(profile: Profile, pair: str, model: str) -> list[Trial[DecodingChoice]]:
    """Returns trainings of a model: the last checkpoint scored on the dev set, and a search chosen for the average."""
    profile = profile.for_pair(pair)
    text, recipe = stages.prepared(profile, pair), profile.recipes[model]
    decoding = profile.decoding.model_copy(update={"workers": recipe.training.workers})
    trials = []
    for seed in _seeds(profile, recipe.training):
        name = f"{AVERAGING} {model} seed {seed}"
        training = stages.TRAIN(f"train {name}", text.dataset, recipe.training.model_copy(update={"seed": seed}))
        last = stages.evaluated(text, name, training, LAST_CHECKPOINT, decoding, on_dev=True)
        average = stages.AVERAGE(f"average {name}", training, recipe.averaging)
        grid = profile.choice.beam_sizes, profile.choice.length_penalties
        choice = stages.CHOOSE_DECODING(f"choose {name}", average, text.dev, decoding, *grid)
        trials.append(Trial(AVERAGING, name, replace(last, model=model), choice))
    return trials


def grid_text(pair: str) -> str:
    """Returns what the text of Table 3 is called, which may differ from the one of Table 2."""
    return f"table3 {pair}"


def extrapolation(profile: Profile, pair: str) -> list[Trial[LengthPerplexity]]:
    """Returns trainings on sentences of at most `claims.longest_tokens` tokens: with sinusoids and learned positions.

    Beside them stands base of Table 3, whose training sentences have all lengths. Perplexity is that of the same dev
    set, whose sentences have all lengths, too.
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
    """Returns a small training of each attention function, with each d_k and seed."""
    profile = profile.for_pair(pair).for_grid()
    dataset = stages.prepared(profile, pair, grid_text(pair)).dataset
    steps = []
    for d_k, function, seed in product(WIDTHS, ATTENTION_FUNCTIONS, _seeds(profile, profile.grid.training)):
        settings = attention_settings(profile.grid.training, d_k, seed)
        label = f"train {function} d_k {d_k} seed {seed}"
        steps.append(TRAIN_ATTENTION(label, dataset, function, settings))
    return steps


def _seeds(profile: Profile, training: TrainingSettings) -> range:
    return range(training.seed, training.seed + profile.claims.seeds)
