"""pipeline.text.word_spaces: languages with and without spaces between words."""

import pytest

from pipeline.text.word_spaces import has_word_spaces


@pytest.mark.parametrize("language", ["zh", "ja", "th", "lo", "km", "my", "bo", "jpn", "yue", "zh-TW", "zh_Hans", "ZH"])
def test_these_have_none(language: str) -> None:
    assert not has_word_spaces(language)


@pytest.mark.parametrize("language", ["en", "de", "fr", "ko", "vi", "trees", "x-zh", "zha", "source"])
def test_these_have_spaces(language: str) -> None:
    assert has_word_spaces(language)
