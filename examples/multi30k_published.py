"""Prepares Multi30k as Wu et al. (2021) did: punctuation normalised, lower-cased and tokenised by Moses, escapes kept.

python examples/multi30k_published.py DIR published     # DIR has train.en.gz, ..., test_2016_flickr.de.gz

Writes the text and its description, `published/text.toml`. All but 9 of its 62,028 lines are the authors'
(github.com/LividWo/Revisit-MMT, data/multi30k-en-de) without the marks of word-pieces, and all 2,000 of the test set.
"""

import gzip
from pathlib import Path

import typer
from sacremoses import MosesPunctNormalizer, MosesTokenizer

SETS = {"train": "train", "dev": "val", "test.test_2016_flickr": "test_2016_flickr"}
"""Names of the files by their keys in `text.toml`."""


def main(source: Path, out: Path) -> None:
    """Prepares the files of `source` in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for language in ("en", "de"):
        normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
        for name in SETS.values():
            with gzip.open(source / f"{name}.{language}.gz", "rt", encoding="utf-8", newline="\n") as file:
                lines = [
                    tokenizer.tokenize(normalizer.normalize(line.strip().lower()), return_str=True) for line in file
                ]
            (out / f"{name}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    described = [f'{key} = {{source = "{name}.en", target = "{name}.de"}}' for key, name in SETS.items()]
    (out / "text.toml").write_text("\n".join(['source = "en"', 'target = "de"', *described, ""]), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
