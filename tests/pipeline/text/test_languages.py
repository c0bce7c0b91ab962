"""pipeline.text.languages: one language by its many codes, and languages with and without spaces between words."""

import pytest

from pipeline.text.languages import has_word_spaces, pair_in, tag_of


@pytest.mark.parametrize(
    ("language", "codes"),
    [
        ("de", "de DE de-AT de_DE deu ger deu_Latn de-DE-1996 de_DE.UTF-8 de_DE@euro"),
        ("zh", "zh zho chi cmn zh-Hant zh_Hans zho_Hans zh-TW zh-cmn-Hans"),
        ("cs", "cs ces cze cs_CZ"),
        ("et", "et est ekk"),
        ("yue", "yue yue_Hant zh-yue"),
        ("trees", "trees Trees"),
    ],
)
def test_a_language_has_many_codes(language: str, codes: str) -> None:
    assert {tag_of(code).language for code in codes.split()} == {language}


def test_a_pair_is_told_from_a_language_with_a_region() -> None:
    pairs = dict.fromkeys(("en-de", "en_de", "eng-deu", "en de"), ("en", "de")) | {"EN-ZH": ("en", "zh")}
    assert {code: pair_in(code) for code in pairs} == pairs
    one = "de DE de-AT de-at de_DE deu_Latn zh-yue zh_Hans zh-hant pt-BR x-zh de-DE-1996 de_DE.UTF-8 de-de trees"
    assert {pair_in(code) for code in one.split()} == {()}


@pytest.mark.parametrize(
    ("spaces", "codes"),
    [
        (False, "zh ja th lo km my bo jpn yue zh-TW zh_Hans ZH zho_Hant cmn mya_Mymr bod nan shn gan"),
        (True, "en de fr ko kor_Hang vi trees x-zh zha source zh-Latn"),
    ],
)
def test_languages_with_and_without_word_spaces(spaces: bool, codes: str) -> None:
    assert {code: has_word_spaces(code) for code in codes.split()} == dict.fromkeys(codes.split(), spaces)
