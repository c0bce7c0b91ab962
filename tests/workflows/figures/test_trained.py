import json
from dataclasses import asdict
from pathlib import Path

from model.config import TransformerConfig
from pipeline.artifacts import Checkpoint
from pipeline.corpora.embedded import split_of
from pipeline.corpora.splitting import hash_of
from pipeline.store.store import Store
from tests.support.parallel_text import set_of
from tests.support.tiny_dag import table_of
from tests.support.tiny_model_store import CORPUS
from workflows.figures.trained import PRINTED_FIGURES, ExaminedModel, at, newest
from workflows.runs import begin_run


def test_a_model_is_found_with_its_lineage(store: Store, checkpoint: Checkpoint) -> None:
    model = newest(store)
    assert model == at(checkpoint.folder, Store(Path("elsewhere")))
    assert (model.name, model.checkpoint.folder) == ("en-de base", checkpoint.folder)
    assert model.generated == CORPUS.text("train")
    assert model.dev.load().sentences == CORPUS.dev_pairs


def test_the_newest_is_a_model_of_table_2(tmp_path: Path) -> None:
    """However new others are, as of runs that have not finished. Without one, a translator precedes a parser."""
    store = Store(tmp_path / "runs")

    def publish_one(name: str, hour: int) -> None:
        (folder := store.folder(name)).mkdir(parents=True)
        (folder / "manifest.json").write_text(json.dumps({"started": f"2026-01-01T{hour:02}:00:00"}))

    publish_one("parser_choice-d", 4)
    assert newest(store).checkpoint.folder.name == "parser_choice-d"
    publish_one("averaging-a", 1)
    publish_one("averaging-b", 2)
    publish_one("averaging-c", 3)
    assert newest(store).checkpoint.folder.name == "averaging-c"
    run = begin_run(store, "table2", "embedded", table_of(1))
    named = {name: f"averaging-{name}" for name in ("a", "b", "not-made-yet", "recurrent")}
    run.save(artifacts=named, status="finished")
    begin_run(store, "table2", "not finished", table_of(2)).save(artifacts={"c": "averaging-c"})
    publish_one("averaging-recurrent", 5)
    config = json.dumps(asdict(TransformerConfig(architecture="recurrent")))
    (store.folder("averaging-recurrent") / "model.json").write_text(config)
    assert newest(store).checkpoint.folder.name == "averaging-b"


def test_what_a_model_translates_where_nothing_is_given(store: Store, tmp_path: Path) -> None:
    sentences = newest(store).sentences()
    assert len(sentences) == 3
    assert {split_of(hash_of(sentence)) for sentence in sentences} == {"test"}
    assert ExaminedModel("m", Checkpoint(tmp_path)).sentences() == (PRINTED_FIGURES[3][0], PRINTED_FIGURES[4][0])
    line = "Der alte Mann geht langsam durch den großen Wald."
    dev = set_of(tmp_path / "dev", [("Kurz.", "Short."), (line, "The old man walks.")], languages=("de", "en"))
    assert ExaminedModel("m", Checkpoint(tmp_path), dev=dev).sentences() == (line,)
