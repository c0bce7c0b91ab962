"""Scores translations by two kinds of BLEU, always named: paper BLEU (tokenized) and sacreBLEU.

Also computes chrF, and both scores' 95% confidence intervals by sacreBLEU's bootstrap over sentences. The same
translations have scored 29.02 by the first and 27.52 by the second (tensor2tensor, issue 317), so the two never share
a column.

    paper_bleu(hypotheses, references, "de")    # §6.1: Moses-tokenized, cased, German compounds split
    sacre_bleu(hypotheses, references, "de")    # detokenized, cased; the signature names the tokenizer

sacreBLEU's tokenizer is 13a, its own for Chinese, Japanese or Korean, or `char` for other languages written without
spaces. For any of these but Korean, paper BLEU is not defined, since Moses' tokenizer needs spaces.
"""

import logging
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest
from sacremoses import MosesPunctNormalizer, MosesTokenizer
from sacremoses.corpus import NonbreakingPrefixes

from pipeline.artifacts import EvaluationSet, Hypotheses, Scores
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.records import BleuScores, ScoringRecord
from pipeline.text.languages import has_word_spaces, tag_of, tokenizer_of
from pipeline.text.lines import read_lines

logger = logging.getLogger(__name__)

# Moses' replace-unicode-punctuation leaves these quotation marks alone, but the authors' German references have ASCII
# quotes; without replacing the low ones, a faithful model scores about one point too low.
_QUOTES = str.maketrans(dict.fromkeys("„‟«»〝〞＂", '"') | dict.fromkeys("‚‘‛‹›´＇", "'"))
_MOSES_PUNCTUATION = [(re.compile(p), ascii_) for p, ascii_ in MosesPunctNormalizer.REPLACE_UNICODE_PUNCTUATION]
_COMPOUND = re.compile(r"(\S)-(\S)")

References = list[list[str]]
"""One or more lists of references, like sacreBLEU's: each has one line per hypothesis."""
RESAMPLES = 1000
MAX_RESAMPLED = 10_000
"""Maximum number of sentences for which intervals are computed: RESAMPLES of a sentence take 48 kB."""


def ascii_punctuation(text: str) -> str:
    """First step of paper BLEU: converts punctuation to ASCII like Moses' replace-unicode-punctuation, and all quotes.

    Dashes are unchanged, as in the Moses script and the authors' references.
    """
    if text.isascii():
        return text
    for pattern, replacement in _MOSES_PUNCTUATION:
        text = pattern.sub(replacement, text)
    return text.translate(_QUOTES)


@cache
def _tokenizer(language: str) -> MosesTokenizer:
    known = NonbreakingPrefixes().available_langs  # by code and by English name
    if tag_of(language).language not in known:
        logger.warning("the Moses tokenizer has no rules for language %r; paper BLEU uses the English ones", language)
    return MosesTokenizer(lang=known.get(tag_of(language).language, "en"))


def split_compounds(tokens: str) -> str:
    """Last step of paper BLEU, for German only: splits at hyphens.

    Works left to right without overlaps: `a-b-c` becomes `a ##AT##-##AT## b-c`.
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", tokens)


def paper_tokens(text: str, language: str) -> str:
    """Returns a line as paper BLEU scores it: ASCII punctuation, Moses tokens and, for German, split compounds."""
    tokenizer = _tokenizer(language)
    tokens: str = tokenizer.tokenize(ascii_punctuation(text), escape=False, return_str=True)
    return split_compounds(tokens) if tokenizer.lang == "de" else tokens


def _check_lines(hypotheses: Sequence[str], references: References) -> None:
    for lines in references:
        if len(hypotheses) != len(lines):
            raise UserError(f"{len(hypotheses)} hypotheses but {len(lines)} references; both need one sentence a line")
    if not hypotheses:
        raise UserError("nothing to score: there are 0 hypotheses and 0 references")


class Bleu(NamedTuple):
    """A BLEU score in percent, its 95% confidence interval (low, high), and sacreBLEU's signature."""

    score: float
    interval: tuple[float, float] | None
    signature: str


def _bleu(metric: BLEU, hypotheses: Sequence[str], references: References, resamples: int) -> Bleu:
    """The interval is sacreBLEU's: symmetric about the mean of resamples drawn with SACREBLEU_SEED."""
    if resamples and len(hypotheses) <= MAX_RESAMPLED:
        test = PairedTest([("", hypotheses)], {"BLEU": metric}, references, test_type="bs", n_samples=resamples)
        result: Any = test()[1]["BLEU"][0]
        score, interval = result.score, (float(result.mean - result.ci), float(result.mean + result.ci))
    else:
        score, interval = metric.corpus_score(hypotheses, references).score, None
    return Bleu(float(score), interval, str(metric.get_signature()))


def paper_bleu(hypotheses: Sequence[str], references: References, language: str, resamples: int = 0) -> Bleu | None:
    """Returns corpus BLEU-4 of `paper_tokens`: case-sensitive, unsmoothed, like multi-bleu.perl (§6.1).

    None if the language is written without spaces, since Moses' tokenizer would leave clauses whole. Raises
    UserError if the numbers of lines differ or are 0.
    """
    _check_lines(hypotheses, references)
    if not has_word_spaces(language):
        return None
    tokenized = [[paper_tokens(line, language) for line in side] for side in (hypotheses, *references)]
    return _bleu(BLEU(tokenize="none", smooth_method="none", force=True), tokenized[0], tokenized[1:], resamples)


def sacre_bleu(
    hypotheses: Sequence[str], references: References, language: str, resamples: int = 0, *, lowercase: bool = False
) -> Bleu:
    """Returns sacreBLEU's default score of detokenized lines, case-sensitive unless `lowercase` (`sacrebleu -lc`).

    The tokenizer is the language's, or else 13a, or `char` for one without spaces. Raises UserError if the numbers of
    lines differ or are 0, or if the tokenizer is not installed.
    """
    _check_lines(hypotheses, references)
    return _bleu(BLEU(lowercase=lowercase, tokenize=tokenizer_of(language)), hypotheses, references, resamples)


def score_texts(
    hypotheses: Sequence[str], references: References, language: str, *, bleu_only: bool = False
) -> BleuScores:
    """Returns both BLEU scores of detokenized lines in `language`; unless `bleu_only`, intervals, lower-cased and chrF.

    Raises UserError if the numbers of lines differ or are 0, or if the language's tokenizer is not installed.
    """
    resamples, chrf = (0 if bleu_only else RESAMPLES), CHRF()
    sacre = sacre_bleu(hypotheses, references, language, resamples)
    paper = paper_bleu(hypotheses, references, language, resamples)
    lowercased = None if bleu_only else sacre_bleu(hypotheses, references, language, lowercase=True)
    return BleuScores(
        paper_bleu=paper and paper.score,
        sacrebleu=sacre.score,
        signature=sacre.signature,
        lowercased=lowercased and lowercased.score,
        lowercased_signature=lowercased and lowercased.signature,
        sentences=len(hypotheses),
        chrf=None if bleu_only else float(chrf.corpus_score(hypotheses, references).score),
        chrf_signature=None if bleu_only else str(chrf.get_signature()),
        paper_bleu_interval=paper and paper.interval,
        sacrebleu_interval=sacre.interval,
    )


def score(context: Context, hypotheses: Hypotheses, text: EvaluationSet, *, bleu_only: bool = False) -> Scores:
    """Writes `score_texts` of an evaluation set's translations.

    Raises UserError if the translations are missing or have another number of lines.
    """
    record, path = text.load(), hypotheses.path(text)
    translations, references = list(read_lines(path)), list(read_lines(text.references))
    try:
        bleu = score_texts(translations, [references], record.target, bleu_only=bleu_only)
    except UserError as error:
        raise UserError(f"{path} and {text.references}: {error}") from None
    return Scores(context.folder).write(ScoringRecord(**dict(bleu), name=record.name, language=record.target))
