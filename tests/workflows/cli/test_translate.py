"""`aiayn translate` in a separate process, through pipes and at a real pseudo-terminal."""

import fcntl
import os
import pty
import subprocess
import sys
import termios
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.artifacts import Checkpoint, Hypotheses
from pipeline.evaluation.translation import Translator
from pipeline.records import DecodingRecord
from pipeline.settings import DecodingSettings
from pipeline.store.store import Store
from tests.support.command_line import CommandLine
from tests.support.tiny_checkpoint import SENTENCES, make_checkpoint
from tests.support.tiny_model_store import publish_model
from workflows.cli.prepared import searched
from workflows.runs import Record, Run

FAST = DecodingSettings(beam_size=3, max_extra_tokens=3)
COMMAND = [sys.executable, "-m", "workflows.cli", "translate"]
OPTIONS = ["--beam-size", "3", "--max-extra-tokens", "3", "--threads", "1"]
ENDS_S = 60.0


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("translate")
    return make_checkpoint(folder / "checkpoint")


@pytest.fixture(scope="module")
def translator(checkpoint: Checkpoint) -> Translator:
    return Translator(checkpoint.folder, FAST)


def piped(checkpoint: Checkpoint, text: str, *more: str) -> subprocess.CompletedProcess[bytes]:
    command = [*COMMAND, str(checkpoint.folder), *OPTIONS, *more]
    return subprocess.run(command, input=text.encode(), capture_output=True, timeout=ENDS_S, check=False)


def test_one_best_with_and_without_scores(checkpoint: Checkpoint, translator: Translator) -> None:
    """Each sentence, even an empty one, yields one line and nothing else. --scores adds a number and a tab in front."""
    text = "".join(line + "\n" for line in SENTENCES)
    plain = piped(checkpoint, text)
    assert plain.stdout.decode().split("\n") == [*translator.translate(SENTENCES), ""]
    assert plain.stderr == b""
    scored = piped(checkpoint, text, "--scores").stdout.decode().splitlines()
    assert [line.split("\t", 1)[1] for line in scored] == translator.translate(SENTENCES)
    expected = [translation.score for translation in translator.translations(SENTENCES)]
    assert [float(line.split("\t")[0]) for line in scored] == pytest.approx(expected, abs=1e-4)


def test_the_search_is_the_table_s(tmp_path: Path, command_line: CommandLine) -> None:
    """Of the run in the model's name, else of the last one; options override it."""
    store = Store(tmp_path / "runs")
    model = publish_model(store)
    for number, beam_size in ((1, 1), (2, 3)):
        used = FAST.model_copy(update={"beam_size": beam_size})
        record = DecodingRecord(sentences=1, seconds=1.0, tokens=1, settings=used, dtype="float32")
        decoded = Hypotheses(store.folder(f"decoding-{number}"))
        decoded.folder.mkdir()
        decoded.write(record)
        run = store.root / "table2" / "embedded" / str(number)
        run.mkdir(parents=True)
        artifacts = {"average en-de base": model.folder.name, "decode en-de base": decoded.folder.name}
        began = datetime.fromtimestamp(number, UTC)
        Run(store.root, run, Record(command="", commit="", host="", began=began, table="t", artifacts=artifacts)).save()
    expected = {
        beam_size: Translator(model.folder, FAST.model_copy(update={"beam_size": beam_size})).translate(SENTENCES)
        for beam_size in (1, 2, 3)
    }
    assert len({*map(tuple, expected.values())}) == 3
    text, named = "".join(line + "\n" for line in SENTENCES), store.root / "table2" / "embedded"
    for name, options, beam_size in (
        (named / "1" / "en-de-base", [], 1),
        (model.folder, [], 3),
        (named / "1" / "en-de-base", ["--beam-size", "2"], 2),
    ):
        done = command_line.here("workflows.cli", "translate", str(name), *options, text=text)
        assert done.stdout.split("\n") == [*expected[beam_size], ""], done.stderr


def test_n_best_list_has_the_moses_format(checkpoint: Checkpoint, translator: Translator) -> None:
    """Lines are numbered from 0 and have four fields, best first. An empty sentence has one entry."""
    written = piped(checkpoint, "A dog .\n\nThe window is red .\n", "--n-best", "2").stdout.decode().splitlines()
    fields = [line.split(" ||| ") for line in written]
    expected = translator.n_best(["A dog .", "", "The window is red ."], 2)
    texts = [(number, output.text) for number, outputs in enumerate(expected) for output in outputs]
    assert [(int(number), text) for number, text, _, _ in fields] == texts
    assert [number for number, *_ in fields] == ["0", "0", "1", "2", "2"]
    flat = [output for outputs in expected for output in outputs]
    assert [float(score) for *_, score in fields] == pytest.approx([output.score for output in flat], abs=1e-4)
    log_p = [float(log_p.removeprefix("LogP= ")) for _, _, log_p, _ in fields]
    assert log_p == pytest.approx([output.log_probability for output in flat], abs=1e-4)


def test_each_sentence_typed_is_answered_at_once(checkpoint: Checkpoint, translator: Translator) -> None:
    """Before the next one is typed. A line that is not UTF-8 is said; ctrl-C ends it without a traceback."""
    keyboard, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, str(checkpoint.folder), *OPTIONS],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that ctrl-C reaches it
    )
    os.close(terminal)
    try:
        for line in ("Two dogs run .", "", "A dog ."):
            os.write(keyboard, b"caf\xe9\n" * (line == "") + line.encode() + b"\n")
            assert process.stdout.readline().decode() == translator.translate([line])[0] + "\n"
        time.sleep(0.2)  # until Python waits for the next line
        os.write(keyboard, b"\x03")
        rest, told = process.communicate(timeout=ENDS_S)
    finally:
        process.kill()
        os.close(keyboard)
    assert (process.returncode, rest) == (130, b"")
    assert b"ctrl-D quits" in told
    assert told.count(b"this line is not UTF-8: type it again") == 1
    assert told.count(b"\n") == 2, told


def test_a_model_whose_decoding_has_no_label_of_its_own_searches_as_the_paper(tmp_path: Path) -> None:
    """As in older records of Table 4: the only candidate of a grid."""
    (model := tmp_path / "store" / "averaging-1").mkdir(parents=True)
    (folder := tmp_path / "table4" / "embedded" / "1").mkdir(parents=True)
    named = {"average supervised candidate": "averaging-1", "decode supervised": "decoding-1"}
    record = Record(command="", commit="", host="", began=datetime.now(UTC), table="t", artifacts=named)
    Run(tmp_path, folder, record).save()
    assert searched(model, model) == DecodingSettings()
