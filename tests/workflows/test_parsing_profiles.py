"""The profiles of Table 4, and the choice among them by treebank."""

from pathlib import Path

import pytest

from pipeline.corpora.embedded import EmbeddedSettings
from pipeline.errors import UserError
from pipeline.parsing.treebank import TreebankSettings
from tests.support.wsj_folder import make_wsj
from workflows.profiles.parsing import EMBEDDED_TREES, load_parsing_profile


def test_a_treebank_gets_the_profile_of_its_size(tmp_path: Path) -> None:
    """With all sections wsj, with one less treebank, without trees embedded; a name overrides."""
    wsj = make_wsj(tmp_path / "wsj", 1)
    assert load_parsing_profile(treebank=wsj).name == "wsj"
    assert load_parsing_profile("treebank", treebank=wsj).name == "treebank"
    assert load_parsing_profile(treebank=wsj, overrides=["choice.dropouts=[0.3]"]).choice.dropouts == (0.3,)
    (wsj / "05" / "wsj_0501.mrg").unlink()
    (wsj / "05").rmdir()
    assert load_parsing_profile(treebank=wsj).name == "treebank"
    assert isinstance(load_parsing_profile(treebank=wsj).corpora["supervised"], TreebankSettings)
    assert load_parsing_profile() == EMBEDDED_TREES
    assert isinstance(EMBEDDED_TREES.corpora["supervised"], EmbeddedSettings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"silver": [Path("silver.trees")]}, "name its folder with --treebank"),
        ({"name": "wsj"}, "profile wsj needs trees"),
        ({"name": "embedded", "treebank": Path("wsj")}, "--treebank does not apply to profile embedded"),
        ({"name": "multi30k"}, "no profile 'multi30k'; choose one of embedded"),
        ({"overrides": ["choice.attention_dropouts=[1]"]}, "choice.attention_dropouts.0: .*less than 1"),
        ({"overrides": ["corpora.supervised.target=de"]}, "target is 'de'; a parser writes trees"),
        ({"overrides": ["choice.beams=[1]"]}, "no setting 'choice.beams'; choose one of dropouts, "),
        ({"overrides": ["decoding.well_formed=true", "decoding.max_extra_tokens=1"]}, "max_extra_tokens to 2 or more"),
        ({"overrides": ["decoding.engine=ctranslate2"]}, "parsers search only by torch"),
    ],
)
def test_what_does_not_fit_is_one_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load_parsing_profile(**options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
