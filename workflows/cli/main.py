"""`aiayn` reproduces the paper's tables, and runs their stages one at a time, on folders and text files.

aiayn table2 --plan                                # without --plan, the table
aiayn settings table2 --profile multi30k updates
aiayn forecast table2 --profile wmt14 --gpu h100
aiayn split text.en text.de --out own              # training, dev, test set
aiayn prepare --files own/text.toml --out prepared         # token ids
aiayn train prepared/dataset --out run                      # checkpoints
aiayn average run --out averaged                   # one model
aiayn translate averaged < text.en > text.de
aiayn score --hyp text.de --ref reference.de --lang de
aiayn parse table4/embedded/supervised < words > trees
aiayn score-trees --gold gold.trees --test parsed.trees
aiayn claims seeds.csv
aiayn results table3/multi30k --out page.md        # one page of finished runs
aiayn curves table2/embedded
aiayn export ctranslate2 averaged --out fast
aiayn export huggingface averaged --out marian
aiayn export mlflow table2/multi30k/en-de-base
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from pipeline.artifacts import METRICS, Checkpoint, EncodedDataset, TrainingRun
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.parsing.evalb import SHORT_WORDS
from pipeline.parsing.evalb import score_trees as tree_scores
from pipeline.settings import AveragingSettings, DecodingSettings
from pipeline.store.artifact import MANIFEST, Artifact
from pipeline.store.store import Store
from pipeline.text.languages import pair_in
from pipeline.text.lines import read_lines
from pipeline.text.normalisation import normalised
from workflows import stages
from workflows.cli import options
from workflows.cli.claims import claims
from workflows.cli.clean import clean_store
from workflows.cli.console import App, console, help_text, run_app, say
from workflows.cli.curves import curves
from workflows.cli.doctor import doctor
from workflows.cli.forecast import FORECAST, Hardware, print_forecast
from workflows.cli.prepared import SearchOptions, record, recorded, searched
from workflows.cli.reproduce import app_of
from workflows.cli.results import results
from workflows.cli.runs import runs
from workflows.cli.settings import SETTINGS, Words, print_settings
from workflows.cli.split import split_text
from workflows.engine.dag import Imported, Step
from workflows.engine.progress import View
from workflows.engine.runner import run
from workflows.experiments import EXPERIMENTS, Experiment
from workflows.names import named_folder
from workflows.profiles.changes import changes_typed, checked, read_config
from workflows.profiles.loading import load_profile
from workflows.quantities import SCORES

EXPORT = """Export a trained model for other programs.

aiayn export ctranslate2 table2/embedded/en-de-base --out fast
aiayn export huggingface table2/embedded/en-de-base --out marian
aiayn export mlflow table2/embedded/en-de-base       # to be served over HTTP
"""


class Commands(TyperGroup):
    """The commands of this module and the experiments', whose modules are imported when they run."""

    experiments: Mapping[str, Experiment] = EXPERIMENTS
    app_of: Callable[[str], App] = staticmethod(app_of)

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        listed = {name: TyperCommand(name, short_help=each.summary) for name, each in self.experiments.items()}
        self.commands = {**listed, **self.commands}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the name of the command to run, the command, and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        experiment = self.experiments.get(name or "")
        return name, typer.main.get_command(self.app_of(experiment.module)) if experiment else command, rest


class Forecasts(Commands):
    """A command for each table."""

    experiments = {name: each for name, each in EXPERIMENTS.items() if name != "figures"}  # noqa: RUF012
    app_of = staticmethod(partial(app_of, act=print_forecast, own=Hardware, summary=FORECAST))


class Listings(Forecasts):
    """A command for each table."""

    app_of = staticmethod(partial(app_of, act=print_settings, own=Words, summary=SETTINGS))


app = App(cls=Commands, no_args_is_help=True, help=help_text(__doc__))
export = App(no_args_is_help=True, help=help_text(EXPORT))
app.add_typer(export, name="export")
app.add_typer(App(cls=Forecasts, no_args_is_help=True, help=FORECAST), name="forecast")
app.add_typer(App(cls=Listings, no_args_is_help=True, help=SETTINGS), name="settings")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"aiayn {version('aiayn')}")
        raise typer.Exit


@app.callback(help=help_text(__doc__))
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Reads the options before the subcommand."""


translate_input = Imported("workflows.cli.writers:translate")
parse_input = Imported("workflows.cli.writers:parse")
score_texts = Imported("pipeline.evaluation.scoring:score_texts")
compared = Imported("pipeline.evaluation.significance:compared")
export_ctranslate2 = Imported("pipeline.export.ctranslate2:export")
export_huggingface = Imported("pipeline.export.huggingface:export")
register = Imported("workflows.cli.registry:register")
write_card = Imported("workflows.cli.card:write_card")

N_BEST_LINE = "`sentence number from 0 ||| translation ||| LogP= log P ||| log P / penalty`"
"""A line of Moses' n-best list format, which rescoring tools read."""
CTRANSLATE2 = """\
import ctranslate2, sentencepiece
model, pieces = ctranslate2.Translator({folder!r}), sentencepiece.SentencePieceProcessor(model_file={vocabulary!r})
print(pieces.decode(model.translate_batch([pieces.encode("Two dogs run .", out_type=str)])[0].hypotheses[0]))"""
TRANSFORMERS = """\
from transformers import MarianMTModel, MarianTokenizer
model, tokenizer = MarianMTModel.from_pretrained({folder!r}), MarianTokenizer.from_pretrained({folder!r})
found = model.generate(**tokenizer(["Two dogs run ."], return_tensors="pt", padding=True))
print(*tokenizer.batch_decode(found, skip_special_tokens=True))"""


@app.command()
def prepare(
    out: options.OutOption,
    pair: Annotated[str | None, typer.Option("--pairs", "--pair", help="One pair.  [default: the first]")] = None,
    files: Annotated[
        Path | None, typer.Option(help="TOML file that names train, dev and test text, like examples/own_text.toml.")
    ] = None,
    data: options.DataOption = None,
    profile: options.ProfileOption = None,
    config: options.ConfigOption = None,
    overrides: options.SetOption = None,
    address: options.AddressOption = None,
) -> None:
    """Convert text to token ids. Writes OUT/corpus (cleaned), OUT/evaluation-SET, OUT/vocabulary, OUT/dataset,
    OUT/overlap and OUT/report; downloads are kept in OUT/downloads."""
    chosen = load_profile(profile, data=data, files=[files] if files else [], config=config, overrides=overrides or [])
    pair = next(iter(chosen.corpora)) if pair is None else pair
    if pair not in chosen.corpora:
        raise UserError(f"--pairs {pair or repr(pair)}: the profile has {', '.join(chosen.corpora)}")
    chosen = chosen.for_pair(pair)
    say(chosen.in_force(changes_typed(config, overrides)))
    folder = out.absolute()
    text = stages.prepared(chosen, pair, out=folder)
    steps = [text.dataset, text.report, text.dev, *text.test_sets.values()]
    _, report, *_ = run(steps, Store(folder), [View(console)], address)
    record(folder, chosen)
    say(f"token ids: {out / 'dataset'}")
    say(f"report: {out / 'report'}: {report.summary}")


@app.command()
def train(
    dataset: Annotated[Path, typer.Argument(help="Folder of token ids written by `aiayn prepare`, or its name.")],
    out: options.OutOption,
    model: Annotated[str, typer.Option(help="One of the profile's recipes: base or big.")] = "base",
    workers: Annotated[
        str | None, typer.Option(help="Training processes: 4, or 2:8 for as many as fit.  [default: the recipe's]")
    ] = None,
    exact_reduction: Annotated[
        bool,
        typer.Option(
            "--exact-reduction", help="Make the weights bit-identical for any number of workers, on GPUs too."
        ),
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(help="embedded, multi30k or wmt14.  [default: from --config, else the prepared text's]"),
    ] = None,
    config: options.ConfigOption = None,
    overrides: options.SetOption = None,
    address: options.AddressOption = None,
) -> None:
    """Train on token ids (paper §5). Rerun after an interruption to resume from the newest checkpoint."""
    folder = named_folder("prepare", dataset, "dataset.json")
    encoded = EncodedDataset(folder)
    described = encoded.read_json("dataset.json")
    changes = [*(overrides or [])]
    if workers:
        changes.append(f"recipes.{model}.training.workers={workers}")
    if exact_reduction:
        changes.append(f"recipes.{model}.training.exact_reduction=true")
    changes = [f"vocabulary.size={described['vocabulary_size']}", *options.once(changes)]
    known = None if profile or read_config(config).get("profile") else recorded(dataset, folder)
    if not (known or profile or config):
        raise UserError(f"{dataset} has no recorded settings; choose them with --profile or --config")
    chosen = load_profile(profile, recorded=known, config=config, overrides=changes)
    chosen = chosen.for_pair("-".join(described["languages"]))
    if model not in chosen.recipes:
        raise UserError(f"--model {model}: the profile has {', '.join(chosen.recipes)}")
    say(chosen.in_force(changes_typed(config, overrides)))
    step = Step("train", stages.TRAIN, (encoded, chosen.recipes[model].training), out=out.absolute())
    run([step], Store(out.absolute().parent), [View(console)], address)
    say(f"checkpoints: {out}")


@app.command()
def average(
    training: Annotated[
        Path, typer.Argument(metavar="run", help="Folder or name of a training run, e.g. table2/embedded/en-de-base.")
    ],
    out: options.OutOption,
    last: Annotated[
        int, typer.Option(min=1, help="Number of most recent checkpoints to average (paper: 5; big: 20).")
    ] = AveragingSettings().last,
) -> None:
    """Average the last checkpoints into one model (paper §6.1)."""
    made_by = TrainingRun(named_folder("train", training, METRICS))
    settings = checked(AveragingSettings, last=last)
    known = made_by.manifest if (made_by.folder / MANIFEST).exists() else {}
    manifest = {
        "stage": stages.AVERAGE.name,
        "settings": [settings.model_dump(mode="json")],
        "inputs": [{"label": known["label"], "fingerprint": known["fingerprint"]}] if known else [],
        "run": str(made_by.folder),
    }
    options.publish_at(
        out, "average", lambda folder: stages.AVERAGE.function(Context(folder), made_by, settings), manifest
    )
    say(f"model: {out}")


@app.command()
@options.with_options
def translate(
    model: options.ModelArgument,
    search: SearchOptions,
    n_best: Annotated[
        int, typer.Option(min=1, help=f"Translations per sentence; above 1, lines of {N_BEST_LINE}.")
    ] = 1,
    scores: Annotated[
        bool, typer.Option("--scores", help="Prefix each line with log P / penalty and a tab; n-best lists always do.")
    ] = False,
) -> None:
    """Translate standard input, one sentence per line (paper §6.1). On a terminal, as you type."""
    checked(DecodingSettings, **search.changes)  # reports wrong options before a model is fetched
    folder = named_folder("average", model, "model.safetensors")
    settings = checked(DecodingSettings, **{**searched(model, folder).model_dump(), **search.changes})
    if n_best > settings.beam_size:
        beam = settings.beam_size
        raise UserError(f"--n-best {n_best} exceeds the beam of {beam}; lower it or set --beam-size {n_best}")
    translate_input(folder, settings, n_best, scores)


@app.command()
@options.with_options
def parse(
    model: Annotated[Path, typer.Argument(help="Folder or name of a parser, e.g. table4/embedded/supervised.")],
    search: SearchOptions,
    constrained: Annotated[
        bool | None,
        typer.Option(help="Search only well-formed trees, which need no repair.  [default: as in its table]"),
    ] = None,
) -> None:
    """Parse standard input, one sentence per line. Its words have spaces ("The dog sleeps ."). Writes one bracketed
    tree per line; on a terminal, draws it (paper §6.3)."""
    changes = search.changes | ({} if constrained is None else {"well_formed": constrained})
    parse_input(named_folder("average", model, "model.safetensors"), changes)


@app.command()
def score(
    hyp: Annotated[
        list[Path], typer.Option(help="Translations, one per line. Repeat it to compare others with the first.")
    ],
    ref: Annotated[
        list[Path], typer.Option(help="References, one per line. May be repeated, for several references a sentence.")
    ],
    lang: Annotated[str, typer.Option(help="Language of both, e.g. de; selects the tokenizers.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print BLEU and chrF. Moses BLEU (tokenized), sacreBLEU (detokenized; also lower-cased), chrF and signatures;
    of each further translation, also the differences from the first, by paired bootstrap."""
    if pair_in(lang) or not lang.strip():
        raise UserError(f"--lang {lang!r}: name one language, e.g. de, with a region in capitals, e.g. pt-BR")
    first, *others = texts = [[*map(normalised, read_lines(path, notice=True))] for path in (*hyp, *ref)]
    for path, lines in zip((*hyp, *ref)[1:], others, strict=True):
        if len(lines) != len(first):
            raise UserError(f"{hyp[0]} has {len(first)} lines, {path} has {len(lines)}; align them line by line")
    hypotheses, references = texts[: len(hyp)], texts[len(hyp) :]
    scores = [score_texts(lines, references, lang) for lines in hypotheses]
    differences = [compared([[first], [lines]], references, lang) for lines in hypotheses[1:]]
    if as_json:
        files = [{"file": str(path), **of_file.model_dump()} for path, of_file in zip(hyp, scores, strict=True)]
        found = [{name: each.model_dump() for name, each in of_file.items()} for of_file in differences]
        tests = [{"file": str(path), **of_file} for path, of_file in zip(hyp[1:], found, strict=True)]
        typer.echo(json.dumps({"hypotheses": files, "differences": tests} if tests else scores[0].model_dump()))
        return
    for path, of_file in zip(hyp, scores, strict=True):
        typer.echo(f"{path}:\n" * bool(differences) + f"{of_file.text.replace(', ', chr(10))}  {of_file.signature}")
        typer.echo(f"lower-cased {of_file.lowercased:.2f}  {of_file.lowercased_signature}")
        typer.echo(f"chrF {of_file.chrf:.2f}  {of_file.chrf_signature}")
    for path, tests in zip(hyp[1:], differences, strict=True):
        typer.echo(f"{path} minus {hyp[0]}:" + " too many sentences to resample" * (not tests))
        for name, each in tests.items():
            p = f"p {each.p:.3f} (sacrebleu --paired-bs: {each.sacrebleu_p:.3f})"
            typer.echo(f"{SCORES[name]} {each.difference:+.2f} {each.interval_text}, {p}  {each.signature}")
    if differences:
        typer.echo("A small p says that other sentences like these would differ as well, not that another seed would.")


@app.command()
def score_trees(
    gold: Annotated[Path, typer.Option(help="Trees of a treebank, one per line or over several.")],
    test: Annotated[Path, typer.Option(help="Trees of the same sentences.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print bracketing recall, precision and F1. As EVALB computes them with COLLINS.prm (paper §6.3)."""
    scores = tree_scores(gold, test)
    for message in scores.messages:
        typer.echo(message, err=True)
    if as_json:
        values = {**scores.total.rounded(), "cutoff_length": SHORT_WORDS, "length_40": scores.total_short.rounded()}
        typer.echo(json.dumps(values))
    else:
        typer.echo("\n".join(scores.summary()))


@export.command()
def ctranslate2(model: options.ModelArgument, out: options.OutOption) -> None:
    """Export to ctranslate2.Translator, with the vocabulary. Prints example code in Python."""
    _export(model, out, "exporting.export_ctranslate2", export_ctranslate2, "ctranslate2", CTRANSLATE2)


@export.command()
def huggingface(model: options.ModelArgument, out: options.OutOption) -> None:
    """Export to transformers' MarianMTModel, with its tokenizer. Prints example code in Python."""
    _export(model, out, "exporting.export_huggingface", export_huggingface, "transformers", TRANSFORMERS)


@export.command()
def mlflow(model: options.ModelArgument) -> None:
    """Register in MLflow. At MLFLOW_TRACKING_URI or in the store's own file; prints the command that serves it."""
    say(f"to serve it: {register(model)}")


def _export(
    model: Path, out: Path, stage: str, function: Callable[[Context, Checkpoint], Artifact], library: str, example: str
) -> None:
    """Publishes a model for `library` with a model card, and prints the example."""
    checkpoint = Checkpoint(named_folder("average", model, "model.safetensors"))

    def make(folder: Path) -> Artifact:
        exported = function(Context(folder), checkpoint)
        write_card(folder, checkpoint, library, code(Path()))
        return exported

    def code(folder: Path) -> str:
        return example.format(folder=str(folder), vocabulary=str(folder / "joint.model"))

    options.publish_at(out, "export", make, {"stage": stage, "settings": [], "model": str(model)})
    say(f"model: {out}; to use it in Python:")
    say(code(out))


app.command("split")(split_text)
app.command()(runs)
app.command()(curves)
app.command()(claims)
app.command()(results)
app.command("clean")(clean_store)
app.command()(doctor)


def main() -> None:
    """Runs the command `aiayn`."""
    run_app(app, "aiayn")
