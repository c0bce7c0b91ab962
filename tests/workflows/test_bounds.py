"""Every number that a user can set has bounds. A value outside them is a one-line error before anything starts."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.corpora.files import FilesSettings
from pipeline.errors import UserError
from pipeline.parsing.treebank import TreebankSettings
from pipeline.settings import TrainingSettings
from workflows.profiles.changes import BaseProfile
from workflows.profiles.complexity import load_complexity_profile
from workflows.profiles.loading import load_profile
from workflows.profiles.parsing import load_parsing_profile

LOADERS: dict[str, Callable[..., BaseProfile]] = {
    "embedded": partial(load_profile, "embedded"),
    "wmt14": partial(load_profile, "wmt14"),
    "trees": load_parsing_profile,
    "treebank": partial(load_parsing_profile, "treebank", treebank=Path(__file__)),
    "layers": partial(load_complexity_profile, "cpu"),
}
MEANS_SOMETHING_AT_0 = re.compile(
    r"(seed|workers|dropouts?|attention_dropouts?|attention_window|beta_1|beta_2|label_smoothing|length_penalt(y|ies)"
    r"|batch_tokens|pass_tokens|replaced_constituents|replaced_words|constituents|(timing|training)\.threads)$"
)
"""Settings for which 0 is valid: off, no limit, automatic, or a number."""
HUGE = ("1" + 20 * "0", "1e300")
MAY_BE_HUGE = ("optimizer.epsilon", "optimizer.learning_rate_scale")
"""Settings without an upper bound: training reports the update in which the loss stops being finite."""


def _numbers(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        first = value[0] if isinstance(value, tuple) and value else value
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(first, int | float) and not isinstance(first, bool):
            yield prefix + name, value


def _is_refused(load: Callable[..., BaseProfile], name: str, value: str, before: Any) -> bool:
    typed = f"[{', '.join([value] * len(before))}]" if isinstance(before, tuple) else value
    try:
        load(overrides=[f"{name}={typed}"])
    except UserError as error:
        message = str(error)
    else:
        return False
    assert "\n" not in message
    assert name.rpartition(".")[2] in message
    return True


@pytest.mark.parametrize("profile", LOADERS)
def test_what_makes_no_sense_is_refused(profile: str) -> None:
    load, taken, refused_at_0 = LOADERS[profile], [], []
    numbers = dict(_numbers((made := load()).model_dump(exclude=made.FIXED)))
    of_models = {name for name in numbers if name.endswith(".model.vocabulary_size")}  # follow vocabulary.size
    for name, value in numbers.items():
        if name in of_models:
            continue
        for wrong in ("-1", "-1e30", "nan", "inf", *HUGE):
            if wrong in HUGE and name.endswith(MAY_BE_HUGE):
                continue
            if not _is_refused(load, name, wrong, value):
                taken.append(f"{name}={wrong}")
        if _is_refused(load, name, "0", value) == bool(MEANS_SOMETHING_AT_0.search(name)):
            refused_at_0.append(name)
    assert len(numbers) > 10
    assert not taken
    assert not refused_at_0, "0 is refused where it means something, or taken where it does not"


@pytest.mark.parametrize(
    ("updates", "every", "keep"), [(10, 3, 2), (10, 3, 99), (9, 3, 1), (9, 3, 2), (2, 5, 4), (1, 1, 1)]
)
def test_the_checkpoints_that_stay(updates: int, every: int, keep: int) -> None:
    settings = TrainingSettings(updates=updates, checkpoint_updates=every, keep_checkpoints=keep)
    assert settings.kept_updates == tuple(n for n in range(1, updates + 1) if n % every == 0 or n == updates)[-keep:]
    longest = TrainingSettings(updates=10**9, checkpoint_updates=1, keep_checkpoints=keep)
    assert longest.kept_updates == tuple(range(10**9 - keep + 1, 10**9 + 1))


def test_a_name_with_a_tilde_is_a_file_unless_it_is_a_user_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NUL characters are rejected in text descriptions and settings; `~/` is still the home folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert TreebankSettings(treebank=Path("~/trees")).treebank == tmp_path / "home" / "trees"
    assert TreebankSettings(treebank=Path("~draft")).treebank == tmp_path / "~draft"
    for name in ("~draft.en", "~draft.cs"):
        (tmp_path / name).write_text("a\n")
    pair = '{source = "~draft.en", target = "~draft.cs"}'
    (tmp_path / "own.toml").write_text(f'source = "en"\ntarget = "cs"\ntrain = {pair}\ndev = {pair}\ntest.a = {pair}\n')
    assert FilesSettings.load(Path("own.toml")).dev.source == tmp_path / "~draft.en"
