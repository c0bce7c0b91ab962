"""pipeline.text.word_spaces: languages with and without spaces between words."""

from pipeline.text.word_spaces import has_word_spaces


def test_languages_by_code() -> None:
    without = ["zh", "ja", "th", "lo", "km", "my", "bo", "jpn", "yue", "zh-TW", "zh_Hans", "ZH"]
    assert not any(map(has_word_spaces, without))
    assert all(map(has_word_spaces, ["en", "de", "fr", "ko", "vi", "trees", "x-zh", "zha", "source"]))
