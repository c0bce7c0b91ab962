"""Settings for a user's own text: by its size unless a profile is named, stated in a line, equal for all commands."""

import gzip
import lzma
import sys
from itertools import chain
from pathlib import Path

import pytest

from model.flops import count_parameters
from pipeline.corpora.files import FilesSettings
from pipeline.errors import UserError
from pipeline.store.artifact import Artifact, publish
from pipeline.store.store import Store
from pipeline.text.normalisation import normalised
from tests.support.command_line import CommandLine
from tests.support.tiny_dag import run_table, table_of
from workflows import reproduce_table2, stages
from workflows.cli.prepared import PROFILE, record, recorded
from workflows.engine.dag import Step, in_order
from workflows.engine.plan import to_run
from workflows.forecast import _text_bytes
from workflows.profiles.loading import load_profile
from workflows.profiles.own_text import SIZES, own_profile
from workflows.profiles.parsing import load_parsing_profile
from workflows.profiles.translation import EMBEDDED, MULTI30K, WMT14


def _describe(folder: Path, pairs: int, language: str = "cs", files: int = 1) -> Path:
    for name in [*(f"train{i}" for i in range(files)), "dev", "test"]:
        n_lines = pairs // files if name.startswith("train") else 1
        (folder / f"{name}.en.gz").write_bytes(gzip.compress(f"{name}\n".encode() * n_lines))
        (folder / f"{name}.{language}").write_bytes(f"{name}:".encode() + b"\xe4\n" * n_lines)
    sides = [f'{{source = "train{i}.en.gz", target = "train{i}.{language}"}}' for i in range(files)]
    toml = folder / f"{language}.toml"
    toml.write_text(
        f'source = "en"\ntarget = "{language}"\ntrain = [{", ".join(sides)}]\n'
        f'dev = {{source = "dev.en.gz", target = "dev.{language}"}}\n'
        f'test.a = {{source = "test.en.gz", target = "test.{language}"}}\n'
    )
    return toml


def test_a_split_keeps_lines_as_they_are_and_equal_sources_together(tmp_path: Path, command_line: CommandLine) -> None:
    """With tabs, other separators, bad bytes and blank lines. The test set depends on neither order nor dev set."""
    pairs = [(b"Price %d:\t5\xc2\x85" % i, b"\tPreis %d" % i) for i in range(2500)] + [(b"", b"leer")] * 99
    pairs += [(source + b"\r", b"auch " + target) for source, target in pairs[::5]]  # equal once normalised
    bad = [(b"Bad %d" % i, b"\xff") for i in range(500)]

    def split(pairs: list[tuple[bytes, bytes]], name: str, dev: int) -> list[list[tuple[bytes, bytes]]]:
        named, out = [str(tmp_path / f"text.{language}.txt.xz") for language in ("en", "de")], tmp_path / name
        for path, lines in zip(named, zip(*pairs, strict=True), strict=True):
            Path(path).write_bytes(lzma.compress(b"".join(line + b"\n" for line in lines)))
        done = command_line.here("workflows.cli", "split", *named, f"--out={out}", f"--dev={dev}", "--test=40")
        assert f": {len(pairs) - 40 - dev:,} pairs for train, 40 pairs for test, {dev} pairs for dev\n" in done.stdout
        text = FilesSettings.load(out / "text.toml")
        files = [sides.paths for sides in (*text.train, text.dev, *text.test.values())]
        return [[*zip(*(path.read_bytes().split(b"\n")[:-1] for path in paths), strict=True)] for paths in files]

    parts = split(pairs + bad, "own", 30)
    assert sorted(chain(*parts)) == sorted(pairs + bad)
    assert set(parts[0]) > set(bad)
    sources = [{normalised(source.decode(errors="surrogateescape")) for source, _ in part} for part in parts]
    assert len(set.union(*sources)) == sum(map(len, sources))
    assert set(split((pairs + bad)[::-1], "again", 60)[2]) == set(parts[2])
    (tmp_path / "t").write_text("".join(f"{i}\t{i}\n" for i in range(20)))
    arguments = ["workflows.cli", "split", f"{tmp_path}/t", f"--out={tmp_path}/x", "--source=en", "--target=de"]
    assert "too few different lines of text: 0 pairs for train, 20 " in command_line.here(*arguments).stderr
    assert " 7 pairs for dev; smaller --dev " in command_line.here(*arguments, "--dev", "7", "--test", "6").stdout


def test_every_size_has_settings_that_work() -> None:
    """More text means more pieces, parameters and updates. Multi30k's size has its profile, the largest the paper's."""
    profiles = [own_profile(int(min(most_pairs, 10**9))) for most_pairs in SIZES]
    parameters = [count_parameters(profile.recipes["base"].training.model) for profile in profiles]
    for profile, smaller in zip(profiles, parameters, strict=True):
        base, big = profile.recipes["base"].training, profile.recipes["big"].training
        assert smaller < count_parameters(big.model)
        assert base.model.vocabulary_size == profile.vocabulary.size == profile.grid.training.model.vocabulary_size
        assert base.model.n_heads * base.model.d_k == base.model.d_model
        profile.for_grid()
    pieces = [profile.vocabulary.size for profile in profiles]
    updates = [profile.recipes["base"].training.updates for profile in profiles]
    for values in ([*SIZES], pieces, parameters, updates):
        assert values == sorted(set(values))
    for pairs, measured in ((1, False), (10_000, False), (10_001, True), (60_000, True), (60_001, False)):
        assert ("measured on Multi30k" in own_profile(pairs).in_force()) == measured
        assert ("not measured at this size" in own_profile(pairs).in_force()) == (not measured)
    assert own_profile(29_000).recipes == MULTI30K.recipes
    assert own_profile(4_500_000).recipes == WMT14.recipes
    assert own_profile(4_500_000).vocabulary == WMT14.vocabulary
    for pairs in (5000, 29_000, 4_500_000):
        spaced, unspaced = own_profile(pairs), own_profile(pairs, has_word_spaces=False)
        assert unspaced.vocabulary.size == spaced.vocabulary.size + 2000
        assert "not measured" in unspaced.in_force()
        assert unspaced.recipes["base"].training.updates == spaced.recipes["base"].training.updates


def test_without_a_profile_the_size_of_the_text_decides(tmp_path: Path) -> None:
    """All training files count, and the smallest of several texts decides. Users' changes are applied on top."""
    toml = _describe(tmp_path, 12_000, files=3)
    profile = load_profile(files=[toml], overrides=["recipes.base.training.updates=700"])
    amount = profile.corpora["en-cs"].amount()
    plain_bytes = 3 * len(b"train0:") + 12_000 * len(b"e\n")
    assert (amount.train_pairs, 0 < amount.text_bytes - plain_bytes < plain_bytes) == (12_000, True)
    assert _text_bytes(profile, "en-cs") > amount.text_bytes  # and token ids
    assert (profile.name, profile.own_pairs, [*profile.corpora]) == ("own", 12_000, ["en-cs"])
    assert profile.recipes["base"].training.model.d_model == 256
    assert profile.recipes["base"].training.updates == 700
    assert profile.in_force() == (
        "default settings for 12,000 training pairs of your own text (measured on Multi30k, 29,000 pairs); "
        "override with --profile or --set"
    )
    (tmp_path / "small").mkdir()
    both = load_profile(files=[toml, _describe(tmp_path / "small", 30, "pt-BR")])
    assert (both.own_pairs, [*both.corpora]) == (30, ["en-cs", "en-pt-BR"])


def test_a_named_profile_decides_as_before(tmp_path: Path) -> None:
    """By --profile or in --config; the printed line names the profile. Without files, the default is unchanged."""
    toml, config = _describe(tmp_path, 5), tmp_path / "mine.toml"
    config.write_text('profile = "embedded"\n')
    for profile in (load_profile("embedded", files=[toml]), load_profile(files=[toml], config=config)):
        assert (profile.name, profile.own_pairs, profile.recipes) == ("embedded", None, EMBEDDED.recipes)
        assert profile.in_force() == "settings of profile embedded: text of the user's own"
    config.write_text("decoding.beam_size = 8\n")
    assert load_profile(files=[toml], config=config).own_pairs == 5
    assert load_profile().own_pairs is None
    with pytest.raises(UserError, match="no profile 'own'"):
        load_profile("own")


def _steps(toml: Path) -> list[Step[Artifact]]:
    profile = load_profile(files=[toml])
    (pair,) = profile.corpora
    (cell,) = reproduce_table2.cells_of(profile, [pair], ["base"], dev_scores=True, choose_decoding=True)
    return in_order([*cell.results, stages.prepared(profile, pair).report])


def test_another_test_set_trains_nothing_again(tmp_path: Path) -> None:
    """Only the new test set is read, translated and scored, like a changed one, and sought in the training text."""
    toml, store = _describe(tmp_path, 5), Store(tmp_path / "runs")
    for step in _steps(toml):
        publish(store.folder(step.name), lambda folder: Artifact(folder), {"fingerprint": step.fingerprint})

    def runs() -> list[str]:
        return sorted(step.label for step in to_run(_steps(toml), store))

    assert not runs()
    described = toml.read_text()
    (tmp_path / "b.cs").write_text("b")
    toml.write_text(described + 'test.b = {source = "test.en.gz", target = "b.cs"}\n')
    assert runs() == ["decode en-cs base b", "overlap en-cs", "read en-cs b", "report en-cs", "score en-cs base b"]
    toml.write_text(described)
    (tmp_path / "test.cs").write_bytes(b"\xe5\n")
    assert runs() == ["decode en-cs base", "overlap en-cs", "read en-cs a", "report en-cs", "score en-cs base"]


def test_text_described_by_a_file_is_changed_there(tmp_path: Path) -> None:
    """--set, --config and --data cannot change it. The profile's other language pairs are unknown."""
    (tmp_path / "more").mkdir()
    toml = _describe(tmp_path, 5)
    for message, arguments in (
        (r"corpora\.en-cs comes from the --files file; change it there", {"overrides": ["corpora.en-cs.train=x"]}),
        (
            r"no setting 'corpora\.en-de\.train_pairs'; choose one of corpora\.en-cs",
            {"overrides": ["corpora.en-de.train_pairs=3"]},
        ),
        (r"no language pair en-fr; choose one of en-cs", {"overrides": ["pairs.en-fr.vocabulary.size=3"]}),
        (r"--data does not apply to profile own: its text is that of --files", {"data": tmp_path}),
        (r"--data does not apply to profile multi30k: its text", {"name": "multi30k", "data": tmp_path}),
        (r"another file has en-cs already; list all text", {"files": [toml, _describe(tmp_path / "more", 7)]}),
    ):
        with pytest.raises(UserError, match=message):
            load_profile(**{"files": [toml], **arguments})


def test_training_uses_what_the_text_was_prepared_with(tmp_path: Path) -> None:
    changed = load_profile("wmt14", overrides=["recipes.base.training.updates=9000"])
    treebank = load_parsing_profile()
    for profile in (MULTI30K, own_profile(600), changed, treebank):
        record(tmp_path, profile)
        again = load_profile(recorded=recorded(tmp_path / "dataset", tmp_path / "dataset"))
        assert (again.name, again.recipes, again.pairs) == (profile.name, profile.recipes, profile.pairs)
        assert again.in_force() == profile.in_force()
    (tmp_path / PROFILE).write_text("[]")
    with pytest.raises(UserError, match=r"cannot read the settings in .*profile\.json, of another version; choose"):
        recorded(tmp_path / "dataset", tmp_path / "dataset")
    assert recorded(Path("mine"), tmp_path / "elsewhere" / "dataset") is None


def test_training_uses_the_settings_of_the_run_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By number or `newest`; for a folder in the store, those of the last run that uses it."""
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "runs")
    run_table(store, 1, **own_profile(700).recorded())
    run_table(store, 2, **own_profile(80_000).recorded())
    text = next(step.name for step in in_order([table_of(1)]) if step.label == "read en-de")  # of both runs
    for named, pairs in (
        ("table2/embedded/1/en-de", 700),
        ("runs/table2/embedded/newest/en-de", 80_000),
        ("table2/embedded/en-de", 80_000),
        (f"runs/store/{text}", 80_000),
    ):
        assert recorded(Path(named), store.folder(text)).own_pairs == pairs


def test_a_missing_scorer_is_named_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toml = _describe(tmp_path, 5, "ja")
    assert load_profile(files=[toml]).own_pairs == 5
    monkeypatch.setitem(sys.modules, "MeCab", None)
    for profile in (None, "embedded"):
        with pytest.raises(UserError, match=r"'ja'.*not installed; pip install 'sacrebleu\[ja\]'$"):
            load_profile(profile, files=[toml])
