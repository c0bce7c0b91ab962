"""Settings for a user's own text: by its size unless a profile is named, in a line, the same for each command."""

import gzip
from pathlib import Path

import pytest

from model.parameters import count
from pipeline.errors import UserError
from workflows.cli.prepared import PROFILE, remember, remembered
from workflows.profiles import EMBEDDED, MULTI30K, WMT14, Profile, load_profile
from workflows.profiles.own_text import SIZES, own_profile


def _in_force(profile: Profile) -> str:
    return profile.in_force({name: recipe.training for name, recipe in profile.recipes.items()})


def _describe(folder: Path, pairs: int, language: str = "cs", files: int = 1) -> Path:
    """Writes own text of so many training pairs, gzipped, in several files of the same size."""
    for name in [*(f"train{i}" for i in range(files)), "dev", "test"]:
        n_lines = pairs // files if name.startswith("train") else 1
        (folder / f"{name}.en.gz").write_bytes(gzip.compress(b"a\n" * n_lines))
        (folder / f"{name}.{language}").write_bytes(b"\xe4\n" * n_lines)
    sides = [f'{{source = "train{i}.en.gz", target = "train{i}.{language}"}}' for i in range(files)]
    toml = folder / f"{language}.toml"
    toml.write_text(
        f'source = "en"\ntarget = "{language}"\ntrain = [{", ".join(sides)}]\n'
        f'dev = {{source = "dev.en.gz", target = "dev.{language}"}}\n'
        f'test.a = {{source = "test.en.gz", target = "test.{language}"}}\n'
    )
    return toml


@pytest.mark.parametrize("pairs", [1, 10_000, 10_001, 60_000, 60_001, 300_001, 2_000_001, 100_000_000])
def test_every_size_has_settings_that_work(pairs: int) -> None:
    """Both recipes are valid and fit together; Table 3's are there; what was measured says on what."""
    profile = own_profile(pairs)
    base, big = profile.recipes["base"].training, profile.recipes["big"].training
    assert count(base.model) < count(big.model)
    assert base.model.vocabulary_size == profile.vocabulary.size == profile.grid.training.model.vocabulary_size
    assert base.model.n_heads * base.model.d_k == base.model.d_model
    profile.for_grid()
    assert ("measured on Multi30k" in _in_force(profile)) == (10_000 < pairs <= 60_000)
    assert ("not measured at this size" in _in_force(profile)) == (not 10_000 < pairs <= 60_000)


def test_sizes_grow_up_to_the_paper_s() -> None:
    """More text, more pieces and more updates; Multi30k's are its profile's, the last the paper's."""
    profiles = [own_profile(int(min(size.most_pairs, 10**9))) for size in SIZES]
    sizes = [(profile.vocabulary.size, profile.recipes["base"].training.updates) for profile in profiles]
    assert sizes == sorted(set(sizes))
    assert own_profile(29_000).recipes == MULTI30K.recipes
    assert own_profile(4_500_000).recipes == WMT14.recipes
    assert own_profile(4_500_000).vocabulary == WMT14.vocabulary


def test_without_a_profile_the_size_of_the_text_decides(tmp_path: Path) -> None:
    """All training files count; of several texts the smallest. Changes are made on top, and the line tells them."""
    toml = _describe(tmp_path, 12_000, files=3)
    profile = load_profile(files=[toml], overrides=["recipes.base.training.updates=700"])
    assert (profile.name, profile.own_pairs, [*profile.corpora]) == ("own", 12_000, ["en-cs"])
    assert profile.recipes["base"].training.model.d_model == 256
    assert _in_force(profile).startswith(
        "settings for 12 000 training pairs of your own text (measured on Multi30k, 29 000 pairs): 6 000 pieces; "
        "base: 2 layers of 256, 700 updates of 1 250 tokens; big: 2 layers of 384, 5 600 updates of 1 250 tokens; "
    )
    (tmp_path / "small").mkdir()
    both = load_profile(files=[toml, _describe(tmp_path / "small", 30, "fi")])
    assert (both.own_pairs, [*both.corpora]) == (30, ["en-cs", "en-fi"])


def test_a_named_profile_decides_as_before(tmp_path: Path) -> None:
    """By --profile or in --config; the line names it. Without files nothing changes."""
    toml, config = _describe(tmp_path, 5), tmp_path / "mine.toml"
    config.write_text('profile = "embedded"\n')
    for profile in (load_profile("embedded", files=[toml]), load_profile(files=[toml], config=config)):
        assert (profile.name, profile.own_pairs, profile.recipes) == ("embedded", None, EMBEDDED.recipes)
        assert _in_force(profile) == "settings of profile embedded: text of the user's own"
    config.write_text("decoding.beam_size = 8\n")
    assert load_profile(files=[toml], config=config).own_pairs == 5
    assert load_profile().own_pairs is None
    with pytest.raises(UserError, match="no profile 'own'"):
        load_profile("own")
    with pytest.raises(UserError, match="--data has no meaning for profile own, which --files names"):
        load_profile(files=[toml], data=tmp_path)


def test_training_uses_what_the_text_was_prepared_with(tmp_path: Path) -> None:
    """The profile is written beside the dataset; a broken note is one line, and none means none."""
    assert remembered(tmp_path / "dataset") == {}
    for profile, known in ((MULTI30K, {"name": "multi30k"}), (own_profile(600), {"own_pairs": 600})):
        remember(tmp_path, profile)
        assert remembered(tmp_path / "dataset") == known
        assert load_profile(**known).recipes == profile.recipes
    (tmp_path / PROFILE).write_text("[]")
    with pytest.raises(UserError, match=r"profile\.json is not what `aiayn prepare` writes; remove it"):
        remembered(tmp_path / "dataset")
