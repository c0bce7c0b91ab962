"""Scores translations by two kinds of BLEU, always named: Moses BLEU (tokenized) and sacreBLEU.

Also computes chrF, and both scores' 95% confidence intervals by sacreBLEU's bootstrap over sentences. The same
translations have scored 29.02 by the first and 27.52 by the second (tensor2tensor, issue 317), so the two never share
a column.

    scores = score_texts(hypotheses, [references], "de")
    scores.paper_bleu    # §6.1: Moses-tokenized, cased, German compounds split
    scores.sacrebleu     # detokenized, cased; the signature names the tokenizer

sacreBLEU's tokenizer is 13a, its own for Chinese, Japanese or Korean, or `char` for other languages written without
spaces. For any of these but Korean, Moses BLEU is not defined, since Moses' tokenizer needs spaces.
"""

import logging
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric
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
    """First step of Moses BLEU: converts punctuation to ASCII like Moses' replace-unicode-punctuation, and all quotes.

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
        logger.warning("the Moses tokenizer has no rules for language %r; Moses BLEU uses the English ones", language)
    return MosesTokenizer(lang=known.get(tag_of(language).language, "en"))


def split_compounds(tokens: str) -> str:
    """Last step of Moses BLEU, for German only: splits at hyphens.

    Works left to right without overlaps: `a-b-c` becomes `a ##AT##-##AT## b-c`.
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", tokens)


def paper_tokens(text: str, language: str) -> str:
    """Returns a line as Moses BLEU scores it: ASCII punctuation, Moses tokens and, for German, split compounds."""
    tokenizer = _tokenizer(language)
    tokens: str = tokenizer.tokenize(ascii_punctuation(text), escape=False, return_str=True)
    return split_compounds(tokens) if tokenizer.lang == "de" else tokens


class PaperBleu(BLEU):
    """Corpus BLEU-4 of `paper_tokens`: case-sensitive, unsmoothed, like multi-bleu.perl (§6.1)."""

    def __init__(self, language: str) -> None:
        super().__init__(tokenize="none", smooth_method="none", force=True)
        self.language, self.tokenizer_signature = language, "moses"

    def _preprocess_segment(self, sent: str) -> str:
        return paper_tokens(sent, self.language)


def metrics(language: str, *, bleu_only: bool = False) -> dict[str, Metric]:
    """Returns the metrics of detokenized lines by name: both BLEU scores and, unless `bleu_only`, chrF.

    A language written without spaces has no Moses BLEU, since Moses' tokenizer would leave clauses whole. Raises
    UserError if sacreBLEU's tokenizer for the language is not installed.
    """
    paper = {"paper_bleu": PaperBleu(language)} if has_word_spaces(language) else {}
    chrf = {} if bleu_only else {"chrf": CHRF()}
    return {**paper, "sacrebleu": BLEU(tokenize=tokenizer_of(language)), **chrf}


def score_texts(
    hypotheses: Sequence[str], references: References, language: str, *, bleu_only: bool = False
) -> BleuScores:
    """Returns both BLEU scores of detokenized lines in `language`; unless `bleu_only`, intervals, lower-cased and chrF.

    Intervals are sacreBLEU's: symmetric about the mean of resamples drawn with SACREBLEU_SEED. Raises UserError if the
    numbers of lines differ or are 0, or if the language's tokenizer is not installed.
    """
    for lines in references:
        if len(hypotheses) != len(lines):
            raise UserError(f"{len(hypotheses)} hypotheses but {len(lines)} references; both need one sentence a line")
    if not hypotheses:
        raise UserError("nothing to score: there are 0 hypotheses and 0 references")
    of_language = metrics(language, bleu_only=bleu_only)
    if not bleu_only:
        of_language["lowercased"] = BLEU(lowercase=True, tokenize=tokenizer_of(language))
    values: dict[str, Any] = {"paper_bleu": None, "sentences": len(hypotheses)}
    for name, metric in of_language.items():
        if isinstance(metric, BLEU) and not (bleu_only or metric.lowercase or len(hypotheses) > MAX_RESAMPLED):
            test = PairedTest([("", hypotheses)], {"": metric}, references, test_type="bs", n_samples=RESAMPLES)
            result: Any = test()[1]["BLEU"][0]
            values[f"{name}_interval"] = float(result.mean - result.ci), float(result.mean + result.ci)
        else:
            result = metric.corpus_score(hypotheses, references)
        values |= {name: float(result.score), f"{name}_signature": str(metric.get_signature())}
    values.pop("paper_bleu_signature", None)  # not sacreBLEU's
    return BleuScores(signature=values.pop("sacrebleu_signature"), **values)


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
