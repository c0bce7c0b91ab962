from dataclasses import replace
from pathlib import Path

import pytest

from model.flops import count_parameters, training_flop
from pipeline.corpora.embedded import EmbeddedSettings
from pipeline.corpora.lengths import drawn
from pipeline.errors import UserError
from pipeline.parsing.treebank import TreebankSettings
from tests.support.wsj_folder import make_wsj
from workflows.cli.reproduce import chosen_names
from workflows.profiles.changes import changes_typed
from workflows.profiles.loading import load_profile
from workflows.profiles.own_text import own_profile
from workflows.profiles.parsing import load_parsing_profile
from workflows.profiles.profile import COMPETITORS, Profile
from workflows.profiles.translation import EMBEDDED, MULTI30K, PROFILES, WMT14, translation_profile


def test_changes_reach_the_setting_they_name(tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    config.write_text('profile = "multi30k"\ndecoding.beam_size = 8\n[recipes.base.training]\nupdates=1700\nseed=3\n')
    overrides = ["recipes.base.training.seed=5", "vocabulary.size = 4000"]
    profile = load_profile(config=config, data=tmp_path, overrides=overrides)
    assert profile.name == "multi30k"
    assert profile.decoding.beam_size == 8
    training = profile.recipes["base"].training
    assert (training.updates, training.seed, training.model.vocabulary_size) == (1700, 5, 4000)
    assert profile.recipes["big"].training.updates == MULTI30K.recipes["big"].training.updates
    assert {corpus.data for corpus in profile.corpora.values()} == {tmp_path}


def test_a_profile_without_changes_is_the_profile() -> None:
    assert load_profile() == EMBEDDED
    assert [load_profile(name) for name in PROFILES] == [*map(translation_profile, PROFILES)]
    assert chosen_names("models", "convolutional,base", EMBEDDED.recipes) == ["base", "convolutional"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["decoding.beam=1"], r"no setting 'decoding.beam'; choose one of decoding.beam_size, "),
        (["training.seed=2"], "seed'; choose one of recipes.base.training.seed, recipes.big.training.seed"),
        (["nonsense=1"], "no setting 'nonsense'; choose one of data, corpora, cleaning"),
        (["updates=many"], "updates is 'many'; give a number of updates"),
        (["decoding.beam_size"], "write it as key=value"),
        (["recipes.base.averaging.last=50"], "averaging.last is 50, but training.keep_checkpoints is 5"),
        (["recipes.base.training.checkpoint_updates=275"], "averaging.last is 5, but 1100 updates .* write only 4"),
        (["recipes.base.training.model.dropout=1.0"], "dropout is 1.0; it must be at least 0 and below 1"),
        (["recipes.base.training.model.attention_dropout=1.0"], "attention_dropout is 1.0; it must be at least 0"),
        (["recipes.base.training.model.vocabulary_size=9"], "no setting .*vocabulary_size"),
        (["vocabulary=9"], "vocabulary is a group; set one of its settings: size, "),
        (["pairs.en-ge.vocabulary.size=8000"], r"no language pair en-ge; choose one of en-de, en-fr"),
        (["pairs.en-de.nonsense=1"], r"pairs\.en-de: there is no setting 'nonsense'"),
        (
            ["pairs.en-de.pairs.en-fr.vocabulary.size=900"],
            r"pairs\.en-de: there is no setting 'pairs\.en-fr\.vocabulary\.size'",
        ),
        (["pairs.en-de=1", "vocabulary.size=900"], r"pairs\.en-de is a group; set one of its settings"),
        (["pairs.en-de.recipes.base=100", "updates=50"], r"pairs\.en-de: recipes\.base is a group"),
        (["pairs.en-fr.vocabulary.size=2"], r"pairs\.en-fr\.vocabulary\.size: .*greater than or equal to 8"),
        (["grid.text.vocabulary.siz=9"], r"grid\.text: there is no setting 'vocabulary\.siz'"),
        (["grid.text.grid.text.vocabulary.size=9"], r"grid\.text: there is no setting 'grid\.text\.vocabulary\.size'"),
        (["corpora.en-de.target=fr"], r"corpora\.en-de\.target is 'fr', which is not the target of en-de"),
        (["name=multi30k"], "there is no setting 'name'"),
    ],
)
def test_a_wrong_setting_is_reported_in_one_line(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load_profile(overrides=overrides)
    assert "\n" not in str(caught.value)


def test_a_change_applies_to_all_pairs_unless_made_for_one() -> None:
    for_all = load_profile("wmt14", overrides=["vocabulary.size=8000"])
    assert {for_all.for_pair(pair).recipes["big"].training.model.vocabulary_size for pair in for_all.corpora} == {8000}
    assert for_all.for_pair("en-fr").recipes["big"].training.model.dropout == 0.1
    for_one = load_profile("wmt14", overrides=["vocabulary.size=8000", "pairs.en-de.vocabulary.size=9000"])
    assert [for_one.for_pair(pair).vocabulary.size for pair in ("en-de", "en-fr")] == [9000, 8000]
    assert load_profile("wmt14").for_pair("en-fr").vocabulary.size == 32_000


def test_table_3_has_its_own_text() -> None:
    """`grid.text` changes only Table 3's text. A user's change to the same setting applies to both tables."""
    differing = ["grid.text.vocabulary.size=300", "grid.text.corpora.en-de.train_pairs=50"]
    profile = load_profile(overrides=differing)
    grid = profile.for_pair("en-de").for_grid()
    assert (profile.vocabulary.size, grid.vocabulary.size) == (EMBEDDED.vocabulary.size, 300)
    assert (grid.grid.training.model.vocabulary_size, grid.recipes["base"].training.model.vocabulary_size) == (300, 300)
    assert grid.corpora["en-de"] == profile.corpora["en-de"].model_copy(update={"train_pairs": 50})
    assert grid.for_grid() == grid
    changed = load_profile(overrides=[*differing, "vocabulary.size=400"])
    assert {changed.vocabulary.size, changed.for_grid().vocabulary.size} == {400}
    with pytest.raises(UserError, match=r"grid.text.corpora.en-de.train_pairs: .*greater than or equal to 1"):
        load_profile(overrides=["grid.text.corpora.en-de.train_pairs=0"])


def test_the_line_of_settings_names_what_changes_them(tmp_path: Path) -> None:
    config = tmp_path / "my settings.toml"
    config.write_text('profile = ["multi30k"]\n')
    assert load_profile().in_force() == "settings of profile embedded: generated text"
    typed = changes_typed(config, ["decoding.beam_size=8", "data=some text"])
    assert load_profile().in_force(typed) == (
        "settings of profile embedded: generated text; changed by "
        f"--config '{config}' --set decoding.beam_size=8 --set 'data=some text'"
    )
    with pytest.raises(UserError, match="no profile \\['multi30k'\\]; choose one of"):
        load_profile(config=config)


@pytest.mark.parametrize("profile", [EMBEDDED, MULTI30K, *(own_profile(pairs) for pairs in (5000, 200_000, 1_000_000))])
def test_competitors_are_of_bases_size(profile: Profile) -> None:
    """Within 5% of base's parameters and 2% of its FLOP on sentences as long as Multi30k's, with base's recipe except
    the rate; trained only on request, never on WMT14."""
    base = profile.recipes["base"]
    lengths = drawn("multi30k")
    flop = {name: r.training.updates * training_flop(r.training.model, *lengths) for name, r in profile.recipes.items()}
    assert profile.default_models == ["base", "big"] == WMT14.default_models == list(WMT14.recipes)
    for name in COMPETITORS:
        recipe = profile.recipes[name]
        model = recipe.training.model
        assert model.architecture == name
        assert count_parameters(model) == pytest.approx(count_parameters(base.training.model), rel=0.05)
        assert recipe.averaging == base.averaging
        optimizer = replace(recipe.training.optimizer, learning_rate_scale=base.training.optimizer.learning_rate_scale)
        own = {name: getattr(base.training, name) for name in ("model", "updates")}
        assert recipe.training.model_copy(update={**own, "optimizer": optimizer}) == base.training
        assert flop[name] == pytest.approx(flop["base"], rel=0.02)


def test_a_treebank_gets_the_profile_of_its_size(tmp_path: Path) -> None:
    wsj = make_wsj(tmp_path / "wsj", 1)
    assert load_parsing_profile(treebank=wsj).name == "wsj"
    assert load_parsing_profile("treebank", treebank=wsj).name == "treebank"
    assert load_parsing_profile(treebank=wsj, overrides=["choice.dropouts=[0.3]"]).choice.dropouts == (0.3,)
    (wsj / "05" / "wsj_0501.mrg").unlink()
    (wsj / "05").rmdir()
    assert load_parsing_profile(treebank=wsj).name == "treebank"
    assert isinstance(load_parsing_profile(treebank=wsj).corpora["supervised"], TreebankSettings)
    assert isinstance(load_parsing_profile().corpora["supervised"], EmbeddedSettings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"silver": [Path("silver.trees")]}, "name its folder with --treebank"),
        ({"name": "wsj"}, "profile wsj needs trees"),
        ({"name": "embedded", "treebank": Path("wsj")}, "--treebank does not apply to profile embedded"),
        ({"name": "multi30k"}, "no profile 'multi30k'; choose one of embedded"),
        ({"overrides": ["choice.attention_dropouts=[1]"]}, "choice.attention_dropouts.0: .*less than 1"),
        ({"overrides": ["corpora.supervised.target=de"]}, "target is 'de'; a parser writes trees"),
        (
            {"overrides": ["grid.training.updates=60"]},
            "no setting 'grid.training.updates'; choose one of recipes.parser",
        ),
        ({"overrides": ["decoding.well_formed=true", "decoding.max_extra_tokens=1"]}, "max_extra_tokens to 2 or more"),
    ],
)
def test_what_does_not_fit_a_parser_is_one_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load_parsing_profile(**options)
    assert "\n" not in str(caught.value)
