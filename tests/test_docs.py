"""README.md, CONTRIBUTING.md, docs/ and infra/README.md: references exist, and computed values are correct."""

import json
import re
import shlex
import subprocess
from functools import cache
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev, variance
from typing import Any

import pytest
import torch
import typer
from scipy.stats import t

from benchmarks import decoding, gpu, preparation, training
from model.batch import Batch, PackedLayout, PackedSize
from tests.support.command_line import APPS, CommandLine
from workflows.claims.inference import Estimate, Groups, two_sided
from workflows.claims.seeds import read

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "infra" / "README.md"])
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
COMMANDS: dict[str, Any] = {
    name.replace("workflows.cli", "aiayn"): typer.main.get_command(app) for name, app in APPS.items()
}
COMMANDS |= {each.__name__: typer.main.get_command(each.app) for each in (decoding, gpu, preparation, training)}
"""The project's commands, in the real applications."""


def commands_in(text: str) -> list[list[str]]:
    """The project's command lines in code blocks and backticks, each as words from the command's name on."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    commands = []
    for line in [*lines, *re.findall(r"`([^`\n]+)`", text)]:
        words = shlex.split(re.sub(r"(?<=\w)'s\b", "s", line), comments=True)
        names = [index for index, word in enumerate(words) if word.removeprefix(".venv/bin/") in COMMANDS]
        if names:
            commands.append([words[names[0]].removeprefix(".venv/bin/"), *words[names[0] + 1 :]])
    return commands


def unknown(words: list[str]) -> list[str]:
    command, rest = COMMANDS[words[0]], words[1:]
    while (below := getattr(command, "commands", None)) and rest and not rest[0].startswith("-"):
        if rest[0] not in below:
            return [rest[0]]
        _, command, rest = command.resolve_command(typer.Context(command), rest)
    options = {name for parameter in command.params for name in [*parameter.opts, *parameter.secondary_opts]}
    return [word for word in rest if word.startswith("--") and word not in options | {"--help"}]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_page_names_exists(name: str) -> None:
    """Links and their headings, repository paths in code, and options of commands, whose folders are no package's."""
    page = ROOT / name
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists()]
    to_headings = [link for link in re.findall(r"\]\(([^)\s]*#[^)]+)\)", text) if "://" not in link]
    missing += [link for link in to_headings if not _leads_to_a_heading(page, *link.split("#"))]
    paths = re.findall(r"\b((?:model|pipeline|workflows|tests|docs|examples|infra)/[\w./-]*\w)", text)
    missing += [path for path in paths if not (ROOT / path).exists() and not (page.parent / path).exists()]
    missing += [" ".join(words) for words in commands_in(text) if unknown(words) or {"model", "pipeline"} & {*words}]
    assert not missing


def _leads_to_a_heading(page: Path, link: str, anchor: str) -> bool:
    """Whether the linked page, or by default this page, has a heading with this GitHub anchor."""
    page = page.parent / link if link else page
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_what_the_architecture_names_is_in_the_code() -> None:
    """Each name of "Where is ...?" is defined in its file, and the change that adds a number fits or was made."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"\| `([\w/]+\.py)`: (.*) \|$", text, re.MULTILINE)
    assert len(named) > 20
    for path, names in named:
        code = (ROOT / path).read_text(encoding="utf-8")
        defined = re.findall(r"^ *(?:def|class) (\w+)|^(\w+) =", code, re.MULTILINE)
        assert {*re.findall(r"`(\w+)`", names)} <= {name for pair in defined for name in pair}, path
    (change,) = re.findall(r"^```diff\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    tried = [["git", "apply", "--check", way, "-"] for way in ("--no-reverse", "--reverse")]  # or it was made
    assert 0 in [subprocess.run(words, cwd=ROOT, input=change, text=True, check=False).returncode for words in tried]


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        waiting += [(page.parent / link).resolve() for link in links if "://" not in link]
    assert not [page.relative_to(ROOT).as_posix() for page in PAGES if page not in reached and page not in RESULTS]


def test_the_readme_quotes_results() -> None:
    """Each number that links to a page of docs/results is on that page."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    quoted = re.findall(r"\[([^\[\]]+(?:\[[^\]]+\])?)\]\((docs/results/[^)#]+)", text)
    assert len(quoted) > 5
    missing = [
        (number, page)
        for words, page in quoted
        for number in re.findall(r"\d+(?:[.,]\d+)*", words)
        if not re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d]|[.,]\d)", (ROOT / page).read_text(encoding="utf-8"))
    ]
    assert not missing


def test_the_readme_says_what_shapes_its_tensors_have() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    values: dict[str, Any] = {}
    exec(code, values)
    shapes = re.findall(r"^(\w+) = .*# \(([\d, ]+)\)", code, re.MULTILINE)
    assert len(shapes) == 4
    for name, shape in shapes:
        assert list(values[name].shape) == [int(size) for size in shape.split(",")]
    weights = sum(weight.numel() for weight in values["model"].parameters())
    assert f"{weights:,} weights" in code
    assert len(values["best"].tokens) > 0


RESULTS = sorted((ROOT / "docs" / "results").glob("*.md"))


def test_the_quickstart_has_the_program_s_dag_and_plan(tmp_path: Path, command_line: CommandLine) -> None:
    """The picture is what the command below it prints, and the number of stages is the plan's."""
    text = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    drawn = re.findall(r"^```mermaid\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    typed = [words[1:] for words in commands_in(text) if "--mermaid" in words]
    printed = [command_line.here("workflows.cli", *words, "--store", str(tmp_path)).stdout for words in typed]
    assert printed == drawn != []
    plan = json.loads(command_line.here("workflows.cli", "table2", "--plan", "--json", "--store", str(tmp_path)).stdout)
    assert f"\n{len(plan['steps'])} stages to run\n" in text


def test_commands_are_found_and_wrong_ones_reported() -> None:
    text = "```\npython -m workflows.reproduce_table2 --plans\naiayn trane x\n```\n`aiayn table3 --row A`, `aiayn`"
    assert [unknown(words) for words in commands_in(text)] == [["--plans"], ["trane"], ["--row"], []]
    assert len(commands_in((ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8"))) > 5


def test_the_fingerprints_computed_by_hand_are_the_profiles(capsys: pytest.CaptureFixture[str]) -> None:
    """The code in docs/architecture.md prints the page's output, the labels of the profile's steps."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    exec(code, {})
    printed = capsys.readouterr().out.strip()
    assert f"`{printed}`" in text
    pinned = json.loads((ROOT / "tests" / "workflows" / "fingerprints.json").read_text(encoding="utf-8"))["embedded"]
    assert printed.split() == [pinned[step].rpartition("-")[2] for step in ("generate en-de", "vocabulary en-de")]


def test_the_batch_of_the_page_is_the_code_s() -> None:
    """Both drawings in docs/batches.md have the tokens, positions, offsets and targets of its two pairs, in order."""
    text = (ROOT / "docs" / "batches.md").read_text(encoding="utf-8")
    source_BS, target_BT = torch.tensor([[5, 6, 3], [7, 3, 0]]), torch.tensor([[8, 3, 0], [9, 4, 3]])
    padded = Batch.padded(source_BS, target_BT, torch.float32)
    packed = Batch.packed(source_BS, target_BT, PackedSize.of(most_tokens=60, most_pairs=3, longest=3))
    for title, batch in (("Padded", padded), ("Packed", packed)):
        drawing = text.partition(f"**{title} layout**")[2].partition("\n    source ")[2].partition("\n\n")[0]
        rows: list[torch.Tensor] = []
        for side in (batch.source, batch.inputs):
            rows += [side.tokens_N, side.positions_N]
            rows += [side.layout.offsets] if isinstance(side.layout, PackedLayout) else []
        for line, row in zip(drawing.split("\n"), [*rows, batch.targets_N], strict=True):
            expected = re.sub(r"( 0 0 0)( 0)+$", r"\1 ... 0", " ".join(map(str, row.tolist())))
            assert f" {expected} " in f" {' '.join(line.split())} "


RUNS = ("26_competitors-multi30k", "27_h200-table3", "26_attention-functions-multi30k", "28_attention-functions-1")
BOTH = ("29_updates-and-initialisation", "30_competitors", "30_table3-multi30k")
PAGES_OF_RUNS = ("26_competitors-multi30k", "27_h200-dag", "26_attention-and-paths", "28_attention-functions")
WITH_STATISTICS = ["README", "docs/protocol", "docs/competitors", *(f"docs/results/2026-11-{n}" for n in PAGES_OF_RUNS)]
WITH_STATISTICS += ["docs/results/README", *(f"docs/results/2026-11-{n}" for n in BOTH)]
OF_OTHER_RUNS = (
    r"39.6 ± 0.5|40.0 ± 0.5|1.34 \[1.10, 1.65\]|At equal seconds, withdrawn.*(?=NLL, mean ± sd)|Timed beside other.*|"
    r"Standard deviations between a row's seeds are \[[\d.]+, [\d.]+\] nats"
)
STATISTIC = r"(?:-?\d+\.\d+ )?\[-?\d+\.\d+, -?\d+\.\d+\]|[\d.]+ ?± ?\d[\d.]*|\d\.\d+ \((?:[\d.]+|[a-z]+)\)"
METRICS = {"final_dev_nll", "equal_flop_dev_nll", "final_dev_perplexity", "paper_bleu.dev", "sacrebleu.dev", "chrf.dev"}
METRICS |= {"paper_bleu.test_2016_flickr", "sacrebleu.test_2016_flickr", *(f"dev_nll.{n}" for n in range(0, 5700, 100))}
METRICS |= {"final_dev_accuracy"}


def pooled(groups: Groups, of: str, minus: str) -> Estimate:
    """A difference by the rule until 29 November 2026: one variance, pooled over all models."""
    df = sum(len(values) - 1 for values in groups.values.values())
    squares = sum((len(values) - 1) * variance(values) for values in groups.values.values())
    error = sqrt(squares / df * sum(1 / len(groups.values[name]) for name in (of, minus)))
    low, high = t.interval(0.95, df, value := fmean(groups.values[of]) - fmean(groups.values[minus]), error)
    return Estimate(value, low, high, df, t.sf(value / error, df), t.cdf(value / error, df))


@cache
def statistics_of_runs() -> tuple[set[str], list[Estimate]]:
    """Means with deviations or learning rates, as pages write them, and effects."""
    means, effects = set[str](), list[Estimate]()
    for name, metric in product((*RUNS, *BOTH), METRICS):
        values: dict[str, list[float]] = {}
        for run in read([ROOT / f"docs/results/2026-11-{name}.csv"]).runs:
            if metric in run.metrics and " rate " not in run.model:
                values.setdefault(run.model, []).append((-1 if "nll" in metric else 1) * run.metrics[metric])
                means.add(f"{abs(fmean(values[run.model])):.2f} ({run.metrics.get('learning_rate_scale', 0):g})")
        groups = Groups(values)
        for of in values:
            mean, deviation, others = abs(fmean(values[of])), stdev(values[of]), [name for name in values if name != of]
            means |= {f"{mean:.{digits}f} ± {deviation:.{digits}f}" for digits in (1, 3)}
            means |= {f"{mean:.2f}±{deviation:#.2g}", f"{mean:.2f}±{deviation:.2f}", f"{deviation:.3f} ({of})"}
            effects.append(groups.behind_best(of, others))
            for minus in others:
                effects += [groups.difference(of, minus), pooled(groups, of, minus)]
                signs = {of: 1, minus: -1, of.replace("128", "4"): -1, minus.replace("128", "4"): 1}
                effects += [groups.contrast(signs)] if len(signs) == 4 else []
    return means, effects


@pytest.mark.parametrize("name", WITH_STATISTICS)
def test_statistics_are_those_of_the_published_runs(name: str) -> None:
    """Means, deviations, effects with their intervals, and p-values, corrected for up to four parts and claims."""
    text = (ROOT / f"{name}.md").read_text(encoding="utf-8").replace("−", "-").replace("(Transformer)", "(base)")
    text = " ".join(re.sub(r"[|*+]|nats(?= \[)", "", text).split())
    text = re.sub(OF_OTHER_RUNS, "", re.sub(r"(-?\d+\.\d+) to (-?\d+\.\d+)", r"[\1, \2]", text))
    means, effects = statistics_of_runs()
    by_text: dict[str, float] = {}
    for each, digits in product(effects, (2, 3)):
        value, low, high = (f"{number:.{digits}f}" for number in (each.value, each.low, each.high))
        by_text |= dict.fromkeys((f"[{low}, {high}]", f"{value} [{low}, {high}]"), abs(round(each.value, 3)))
    written = set(re.findall(STATISTIC, re.sub(r"p = [\d.e-]+", "", text)))
    assert written - by_text.keys() - means == set()
    values = {by_text[each] for each in written if each in by_text}
    p = [two_sided(each.p_holds, each.p_fails) for each in effects if abs(round(each.value, 3)) in values]
    known = {f"{times * each:.{digits}g}" for each, times, digits in product(p, (1, 2, 4), (1, 2))}
    assert set(re.findall(r"p = (\d[\d.e-]*)", text)) <= known
