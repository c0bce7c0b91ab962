"""`aiayn translate` in a process of its own, through pipes and at a real pseudo-terminal."""

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator

import pytest

from pipeline.evaluation.translation import Translator
from pipeline.settings import DecodingSettings
from pipeline.store.artifacts import Checkpoint
from tests.support.command_line import CommandLine
from tests.support.tiny_checkpoint import SENTENCES, make_checkpoint, make_corpus

FAST = DecodingSettings(beam_size=3, max_extra_tokens=3)
COMMAND = [sys.executable, "-m", "workflows.cli", "translate"]
OPTIONS = ["--beam-size", "3", "--max-extra-tokens", "3", "--threads", "1"]
ENDS_S = 60.0


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("translate")
    return make_checkpoint(folder / "checkpoint", make_corpus(folder / "corpus"))


@pytest.fixture(scope="module")
def translator(checkpoint: Checkpoint) -> Translator:
    return Translator(checkpoint.folder, FAST)


def piped(checkpoint: Checkpoint, text: str, *more: str) -> subprocess.CompletedProcess[bytes]:
    """Runs the command with `text` as its standard input."""
    command = [*COMMAND, str(checkpoint.folder), *OPTIONS, *more]
    return subprocess.run(command, input=text.encode(), capture_output=True, timeout=ENDS_S, check=False)


def test_one_best_with_and_without_scores(checkpoint: Checkpoint, translator: Translator) -> None:
    """Each sentence, even an empty one, gives one line, and nothing else; --scores prepends a number and a tab."""
    text = "".join(line + "\n" for line in SENTENCES)
    plain = piped(checkpoint, text)
    assert plain.stdout.decode().split("\n") == [*translator.translate(SENTENCES), ""]
    assert plain.stderr == b""
    scored = piped(checkpoint, text, "--scores").stdout.decode().splitlines()
    assert [line.split("\t", 1)[1] for line in scored] == translator.translate(SENTENCES)
    expected = [translation.score for translation in translator.translations(SENTENCES)]
    assert [float(line.split("\t")[0]) for line in scored] == pytest.approx(expected, abs=1e-4)


def test_n_best_list_has_the_moses_format(checkpoint: Checkpoint, translator: Translator) -> None:
    """Lines are numbered from 0 and have four fields, best first; an empty sentence has one entry."""
    written = piped(checkpoint, "A dog .\n\nThe window is red .\n", "--n-best", "2").stdout.decode().splitlines()
    fields = [line.split(" ||| ") for line in written]
    expected = translator.n_best(["A dog .", "", "The window is red ."], 2)
    assert [(int(number), text) for number, text, _, _ in fields] == [
        (number, output.text) for number, outputs in enumerate(expected) for output in outputs
    ]
    assert [number for number, *_ in fields] == ["0", "0", "1", "2", "2"]
    flat = [output for outputs in expected for output in outputs]
    assert [float(score) for *_, score in fields] == pytest.approx([output.score for output in flat], abs=1e-4)
    log_p = [float(log_p.removeprefix("LogP= ")) for _, _, log_p, _ in fields]
    assert log_p == pytest.approx([output.log_probability for output in flat], abs=1e-4)


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--length-penalty", "nan", "length-penalty"),
        ("--length-penalty", "1000", "length_penalty"),
        ("--beam-size", "1000000", "beam_size"),
        ("--dtype", "float8", "dtype"),
    ],
)
def test_bad_settings_are_one_line(
    checkpoint: Checkpoint, option: str, value: str, told: str, command_line: CommandLine
) -> None:
    """What the search cannot work with is refused by name, with status 2, before anything is read."""
    command = ["workflows.cli", "translate", str(checkpoint.folder), *OPTIONS, option, value]
    refused = command_line.here(*command, text="A dog .\n")
    assert refused.returncode == 2
    assert told in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert refused.stdout == ""


def test_asking_for_more_than_the_beam_is_a_one_line_error(checkpoint: Checkpoint) -> None:
    """--n-best above --beam-size gives status 2, one line and nothing on standard output."""
    refused = piped(checkpoint, "A dog .\n", "--n-best", "4")
    assert refused.returncode == 2
    assert refused.stdout == b""
    assert refused.stderr.decode().count("\n") == 1
    assert "--n-best 4" in refused.stderr.decode()


class Terminal:
    """A process with a controlling pseudo-terminal as its standard input, and on request as its standard output."""

    def __init__(self, command: list[str], output_too: bool) -> None:
        self._keyboard, terminal = pty.openpty()
        self.process = subprocess.Popen(
            command,
            stdin=terminal,
            stdout=terminal if output_too else subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that ctrl-C reaches it
        )
        os.close(terminal)
        assert self.process.stderr is not None
        streams = {"screen": self._keyboard, "stderr": self.process.stderr.fileno()}
        if self.process.stdout is not None:
            streams["stdout"] = self.process.stdout.fileno()
        self._streams = streams
        self.seen = dict.fromkeys(streams, "")
        self._waited = dict.fromkeys(streams, 0)

    def type(self, keys: str | bytes) -> None:
        """Types keys as a user would."""
        os.write(self._keyboard, keys.encode() if isinstance(keys, str) else keys)

    def wait_for(self, stream: str, text: str) -> None:
        """Reads until `stream` shows `text` after the text last waited for."""
        deadline_s = time.monotonic() + ENDS_S
        while text not in self.seen[stream][self._waited[stream] :]:
            assert self._read(0.1) or self.process.poll() is None, f"ended, with no {text!r} in {self.seen}"
            assert time.monotonic() < deadline_s, f"no {text!r} in {self.seen}"
        self._waited[stream] = self.seen[stream].index(text, self._waited[stream]) + len(text)

    def end(self) -> int:
        """Waits for the end, reads the remaining output and returns the exit status."""
        status = self.process.wait(ENDS_S)
        while self._read(0.1):
            pass
        return status

    def close(self) -> None:
        """Kills the process if it is still running."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._keyboard)
        for file in (self.process.stdout, self.process.stderr):
            if file is not None:
                file.close()

    def _read(self, wait_s: float) -> bool:
        ready, _, _ = select.select(list(self._streams.values()), [], [], wait_s)
        for stream, descriptor in list(self._streams.items()):
            if descriptor in ready:
                try:
                    data = os.read(descriptor, 65536)
                except OSError:  # Linux raises this at the end of a terminal's output
                    data = b""
                if not data:
                    del self._streams[stream]
                self.seen[stream] += data.decode(errors="replace")
        return bool(ready)


@pytest.fixture
def terminal(checkpoint: Checkpoint) -> Iterator[Callable[..., Terminal]]:
    """`terminal("--scores", output_too=True)` runs the command at a terminal and kills it after the test."""
    opened: list[Terminal] = []

    def open_terminal(*more: str, output_too: bool = True) -> Terminal:
        opened.append(Terminal([*COMMAND, str(checkpoint.folder), *OPTIONS, *more], output_too))
        return opened[-1]

    yield open_terminal
    for one in opened:
        one.close()


def test_each_sentence_is_answered_at_once(terminal: Callable[..., Terminal], translator: Translator) -> None:
    """Each answer comes before the next sentence is typed; an empty line gives an empty one; ctrl-D exits with 0."""
    at = terminal(output_too=False)
    at.wait_for("stderr", "ctrl-D quits")
    lines = ["Two dogs run .", "", "A dog ."]
    answers = [text + "\n" for text in translator.translate(lines)]
    for line, answer in zip(lines, answers, strict=True):
        at.type(line + "\n")
        at.wait_for("stdout", answer)
    at.type("\x04")
    assert at.end() == 0
    assert at.seen["stdout"] == "".join(answers)


def test_ctrl_c_exits_cleanly(terminal: Callable[..., Terminal]) -> None:
    """The exit status is 130 and there is no traceback."""
    at = terminal()
    at.wait_for("stderr", "ctrl-D quits")
    at.type("A do")
    at.wait_for("screen", "A do")
    time.sleep(0.2)  # the echo appears before Python handles signals again
    at.type("\x03")
    assert at.end() == 130
    assert "Traceback" not in at.seen["stderr"]
