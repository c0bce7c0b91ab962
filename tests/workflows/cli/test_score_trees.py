"""`aiayn score-trees`: EVALB's scores, messages on the error stream, and errors in one line."""

from pathlib import Path

from tests.support.command_line import CommandLine

GOLD = "(S (NP (DT the) (NN dog)) (VP (VBZ eats) (NP (DT a) (NN bone))) (. .))"
TEST = "(S (NP (DT the) (NN dog)) (VP (VBZ eats) (PP (DT a)) (NP (NN bone))) (. .))"
WRONG = TEST.replace("dog", "cat")
LONG = "(NP {})".format(" ".join(["(NN a)"] * 41))


def test_the_summary(tmp_path: Path, command_line: CommandLine) -> None:
    """EVALB's summary: 4 of 5 gold brackets and of 6. Messages go to the error stream, one per line."""
    (tmp_path / "gold").write_text(f"{GOLD}\n{LONG}\n{GOLD}\n{GOLD}\n")
    (tmp_path / "test").write_text(f"{TEST}\n{LONG}\n{WRONG}\n\n")
    files = ("--gold", str(tmp_path / "gold"), "--test", str(tmp_path / "test"))
    done = command_line.here("workflows.cli", "score-trees", *files)
    assert (done.returncode, done.stderr) == (0, "3 : Words unmatch (dog|cat)\n")
    lines = done.stdout.split("\n")
    assert lines[:3] == ["=== Summary ===", "", "-- All --"]
    assert lines[3:10] == [
        "Number of sentence        =      4",
        "Number of Error sentence  =      1",
        "Number of Skip  sentence  =      1",
        "Number of Valid sentence  =      2",
        "Bracketing Recall         =  80.00",
        "Bracketing Precision      =  66.67",
        "Bracketing FMeasure       =  72.73",
    ]
    assert lines[15:18] == ["", "-- len<=40 --", "Number of sentence        =      3"]
