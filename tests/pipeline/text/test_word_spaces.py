"""pipeline.text.word_spaces: languages with and without spaces between words."""

from pipeline.text.word_spaces import has_word_spaces


def test_languages_by_code() -> None:
    without = ["zh", "ja", "th", "lo", "km", "my", "bo", "jpn", "yue", "zh-TW", "zh_Hans", "ZH"]
    with_spaces = ["en", "de", "fr", "ko", "vi", "trees", "x-zh", "zha", "source"]
    assert [language for language in without + with_spaces if has_word_spaces(language)] == with_spaces
