"""Makes the artifact folders of a small row of Table 4, as its stages would write them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from model.config import TransformerConfig
from pipeline.evaluation.parses import Parses, read_gold, rebuild_parses, right_branching
from pipeline.evaluation.tree_scores import ScoredTrees, score_parses
from pipeline.parsing.linearisation import linearise
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import CHOICE_FILE, ChosenParser, Corpus, Hypotheses
from pipeline.store.figures import DecodedTestSet, DecodingFigures
from pipeline.text.lines import write_lines
from tests.support.tiny_parser import make_trees
from workflows.tables.measurements import Translation
from workflows.tables.parser_measurements import CandidateParser, ParserRow, SearchedTrees

SEARCH = DecodingSettings(beam_size=4, length_penalty=0.3, max_extra_tokens=300)


@pytest.fixture
def parser_row(cell: Callable[..., Translation], tmp_path: Path) -> Callable[..., ParserRow]:
    """Makes a row of two candidates; of the outputs of the second, every third has its last two symbols cut off."""

    def folder(*parts: str) -> Path:
        path = tmp_path.joinpath(*parts)
        path.mkdir(parents=True)
        return path

    def parsed(gold: Corpus, split: str, name: str, cut: int) -> tuple[Hypotheses, Parses, ScoredTrees]:
        hypotheses = Hypotheses(folder(name, split, "hypotheses"))
        symbols = [linearise(tree) for tree in read_gold(gold, split)]
        lines = [" ".join(written[: -cut or None] if i % 3 == 0 else written) for i, written in enumerate(symbols)]
        write_lines(hypotheses.folder / f"{split}.trees", lines)
        decoded = {split: DecodedTestSet(sentences=len(lines), seconds=2.0, tokens=99)}
        hypotheses.write(DecodingFigures(test_sets=decoded, settings=SEARCH, dtype="float32"))
        parses = rebuild_parses(Context(folder(name, split, "parses")), hypotheses, gold, [split])
        return hypotheses, parses, score_parses(Context(folder(name, split, "scores")), parses)

    def build(
        training: str = "WSJ only, discriminative",
        data: str = "generated trees",
        of_attention: tuple[float, float] = (0.0, 0.0),
    ) -> ParserRow:
        gold = make_trees(tmp_path / training)
        candidates = []
        for (name, cut), attention_dropout in zip((("dropout 0", 2), ("dropout 0.1", 6)), of_attention, strict=True):
            config = TransformerConfig(vocabulary_size=800, n_layers=2, attention_dropout=attention_dropout)
            trained = cell("en-trees", f"{training} {name}", config=config)
            hypotheses, parses, scores = parsed(gold, "dev", f"{training} {name}", cut)
            candidates.append(
                CandidateParser(
                    "en-trees",
                    name,
                    data,
                    corpus=gold,
                    training=trained.training,
                    checkpoint=trained.checkpoint,
                    hypotheses=hypotheses,
                    perplexity=trained.perplexity,
                    cost=trained.cost,
                    parses=parses,
                    scores=scores,
                )
            )
        parser = ChosenParser(folder(training, "parser"))
        f1 = {parser.model: parser.scores.load().splits["dev"].total.f1 for parser in candidates}
        choice = {"model": "dropout 0", "models": f1, "beams": {1: 50.0, 4: f1["dropout 0"]}}
        parser.write_json(CHOICE_FILE, {**choice, "settings": SEARCH.model_dump()})
        baseline = right_branching(Context(folder(training, "right")), gold, ["test"])
        return ParserRow(
            training,  # type: ignore[arg-type]
            data,
            "test",
            tuple(candidates),
            {"dropout 0.3": "the loss is not finite"},
            score_parses(Context(folder(training, "right scores")), baseline),
            parser,
            SearchedTrees(*parsed(gold, "test", f"{training} test", 7)),
        )

    return build
