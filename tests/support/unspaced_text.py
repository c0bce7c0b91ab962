"""The same sentences in English and in three languages without spaces between words, line by line."""

from pathlib import Path

_LINES = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8").splitlines()
ENGLISH, CHINESE, JAPANESE, THAI = map(list, zip(*(line.split("\t") for line in _LINES), strict=True))
TEXTS = {"zh": CHINESE, "ja": JAPANESE, "th": THAI}
