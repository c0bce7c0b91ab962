from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from model.config import TransformerConfig
from pipeline.artifacts import CHOICE_FILE, ChosenParser, EvaluationSet, Hypotheses
from pipeline.complexity.records import CountsArtifact, MeasurementsArtifact
from pipeline.context import Context
from pipeline.evaluation.parses import Parses, rebuild_parses, right_branching
from pipeline.evaluation.tree_scores import ScoredTrees, score_parses
from pipeline.records import DecodingRecord
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import JsonArtifact
from pipeline.text.lines import read_lines, write_lines
from tests.support.tiny_complexity import counts, measurements, theory_s
from tests.support.tiny_parser import make_tree_set, make_trees
from workflows.tables import table1, table2, table3_page, table4
from workflows.tables.measured import Measured
from workflows.tables.table3 import RowTrainings
from workflows.tables.table4 import ParserRow

SEARCH = DecodingSettings(beam_size=4, length_penalty=0.3, max_extra_tokens=300)


@pytest.fixture(scope="session")
def parser_row(cell: Callable[..., Measured], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ParserRow]:
    """Writes a row of two candidates. Every third output of the second lacks its last two symbols."""
    trees = tmp_path_factory.mktemp("trees")
    corpus = make_trees(trees)
    dev, test = (make_tree_set(trees, name) for name in ("dev", "test"))

    def parsed(gold: EvaluationSet, cut: int) -> tuple[Hypotheses, Parses, ScoredTrees]:
        hypotheses = Hypotheses(tmp_path_factory.mktemp("hypotheses"))
        symbols = [line.split() for line in read_lines(gold.references)]
        lines = [" ".join(written[: -cut or None] if i % 3 == 0 else written) for i, written in enumerate(symbols)]
        write_lines(hypotheses.path(gold), lines)
        hypotheses.write(DecodingRecord(sentences=len(lines), seconds=2.0, tokens=99, settings=SEARCH, dtype="float32"))
        parses = rebuild_parses(Context(tmp_path_factory.mktemp("parses")), hypotheses, gold)
        return hypotheses, parses, score_parses(Context(tmp_path_factory.mktemp("scores")), parses)

    def build(
        training: str = "WSJ only, discriminative",
        data: str = "generated trees",
        of_attention: tuple[float, float] = (0.0, 0.0),
    ) -> ParserRow:
        candidates = []
        for (name, cut), attention_dropout in zip((("dropout 0", 2), ("dropout 0.1", 6)), of_attention, strict=True):
            config = TransformerConfig(vocabulary_size=800, n_layers=2, attention_dropout=attention_dropout)
            trained = cell("en-trees", f"{training} {name}", config=config)
            hypotheses, parses, scores = parsed(dev, cut)
            pair = "semi-supervised" if training == "semi-supervised" else "supervised"
            own = {"pair": pair, "model": name, "data": data, "corpus": corpus, "test_set": dev}
            own |= {"hypotheses": hypotheses, "parses": parses, "scores": (scores,)}
            candidates.append(replace(trained.cell, **own))
        parser = ChosenParser(tmp_path_factory.mktemp("parser"))
        f1 = {parser.model: parser.scores[0].load().total.f1 for parser in candidates}
        choice = {"model": "dropout 0", "models": f1, "beams": {1: 50.0, 4: f1["dropout 0"]}}
        parser.write_json(CHOICE_FILE, {**choice, "settings": SEARCH.model_dump()})
        baseline = right_branching(Context(tmp_path_factory.mktemp("right")), corpus, test)
        found = dict(zip(("hypotheses", "parses", "scores"), parsed(test, 7), strict=True))
        return ParserRow(
            training=training,
            data=data,
            candidates=tuple(candidates),
            failures={"dropout 0.3": "the loss is not finite"},
            baseline=score_parses(Context(tmp_path_factory.mktemp("scores")), baseline),
            parser=parser,
            **found,
        )

    return build


WARNING = "read en-de: train.en is not the <published> file"


@pytest.fixture(scope="session", params=[1, 2, 3, 4])
def made(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    cell: Callable[..., Measured],
    trained_row: Callable[..., RowTrainings],
    parser_row: Callable[..., ParserRow],
) -> JsonArtifact[Any]:
    """Each table in turn; one of its stages has a warning.

    Table 1 with times as in theory; Table 2 with a cell with word-by-word substitution, another without, and two that
    were not run; Table 3 with several seeds, a row that has not converged, rows without values, and a user's own; Table
    4 with one row of three candidates, of which one failed.
    """
    context = Context(tmp_path_factory.mktemp("table"), warnings=[WARNING])
    match request.param:
        case 1:
            counted = CountsArtifact(tmp_path_factory.mktemp("table1")).write(counts())
            measured = MeasurementsArtifact(tmp_path_factory.mktemp("table1")).write(measurements(theory_s))
            return table1.tabulate(context, counted, measured)
        case 2:
            base, big = (cell(*names, data="generated text").cell for names in (("en-de", "base"), ("en-fr", "big")))
            return table2.tabulate(context, [replace(base, word_by_word=base.scores[0]), big])
        case 3:
            rows = [
                trained_row("base", 7.0, 7.4, errors=(1, 2), data="generated text"),
                trained_row("A1", 8.0, last_fall=0.2, data="generated text"),
                RowTrainings("B1", {"d_k": 16}, (), "out of memory"),
                RowTrainings("B2", {"d_k": 32}, ()),
                trained_row("C1", 6.0, errors=(0,), parameters=900_000),
                trained_row("E", 7.1),
                RowTrainings("F1", {"n_layers": 1, "warmup_steps": 9}, trained_row("F1", 6.5).trainings),
            ]
            return table3_page.tabulate(context, rows)
    return table4.tabulate(context, [parser_row(of_attention=(0.2, 0.0))])
