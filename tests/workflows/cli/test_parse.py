"""`aiayn parse`: sentences in, trees out."""

from pathlib import Path

import pytest

from pipeline.artifacts import Checkpoint
from pipeline.evaluation.parser import Parser
from pipeline.parsing.trees import bracketed, trees_in, words_of
from pipeline.settings import PARSING
from tests.support.command_line import CommandLine
from tests.support.tiny_checkpoint import make_checkpoint
from tests.support.tiny_parser import SENTENCES, choose, make_parser, make_trees

OPTIONS = ["--beam-size", "2", "--max-extra-tokens", "4", "--threads", "1"]
FAST = PARSING.model_copy(update={"beam_size": 2, "max_extra_tokens": 4})


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("parse")
    return make_parser(folder / "parser", make_trees(folder))


def test_each_line_gives_a_tree_over_its_words(checkpoint: Checkpoint, command_line: CommandLine) -> None:
    """Even random weights yield trees. A blank line yields a blank line; brackets among the words are escaped."""
    text = "".join(line + "\n" for line in SENTENCES)
    done = command_line.here("workflows.cli", "parse", str(checkpoint.folder), *OPTIONS, text=text)
    assert (done.returncode, done.stderr) == (0, "")
    first, blank, last, end = done.stdout.split("\n")
    assert blank == end == ""
    (tree,) = trees_in([first], "output")
    assert words_of(tree.tree) == SENTENCES[0].split()
    (tree,) = trees_in([last], "output")
    assert words_of(tree.tree) == ["We", "went", "into", "the", "-LRB-", "old", "-RRB-", "city", "."]
    assert [first, last] == [bracketed(one.tree) for one in Parser(checkpoint.folder, FAST).parse(SENTENCES) if one]


def test_a_parser_searches_as_was_chosen(tmp_path: Path, command_line: CommandLine) -> None:
    """Without options, the trees are those of Table 4, constrained if they were there."""
    parser = make_parser(tmp_path / "parser", make_trees(tmp_path))
    free, constrained = (FAST.model_copy(update={"well_formed": well_formed}) for well_formed in (False, True))
    trees = [bracketed(one.tree) for one in Parser(parser.folder, constrained).parse(SENTENCES) if one]
    assert trees != [bracketed(one.tree) for one in Parser(parser.folder, free).parse(SENTENCES) if one]
    choose(parser, constrained)
    done = command_line.here("workflows.cli", "parse", str(parser.folder), "--threads=1", text="\n".join(SENTENCES))
    assert done.stdout.split("\n")[::2] == trees, done.stderr


@pytest.mark.parametrize("line", ["x" * 2500 + " sleeps .", "The \u200b dog"])
def test_a_part_of_a_word_is_no_sentence(checkpoint: Checkpoint, command_line: CommandLine, line: str) -> None:
    """A word longer than a search chunk, and one without a visible character, stay one word each."""
    options = [str(checkpoint.folder), *OPTIONS, "--constrained"]
    done = command_line.here("workflows.cli", "parse", *options, text=line + "\n")
    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr
    (tree,) = trees_in([done.stdout.rstrip("\n")], "output")
    assert words_of(tree.tree) == line.split()


def test_a_tree_fits_into_learned_positions(tmp_path: Path) -> None:
    """A sentence as long as the model's positions is parsed in parts, with room for their roots."""
    parser = make_parser(tmp_path / "parser", make_trees(tmp_path), positions="learned", max_positions=12)
    settings = FAST.model_copy(update={"well_formed": True})
    for n_words in range(1, 15):
        (parsed,) = Parser(parser.folder, settings).parse(["the " * n_words])
        assert words_of(parsed.tree) == ["the"] * n_words


def test_a_word_with_the_vocabulary_s_sign_for_a_space_is_one_word(checkpoint: Checkpoint) -> None:
    """A constrained search finds a tree with the sentence's number of words, so nothing is repaired."""
    settings = FAST.model_copy(update={"well_formed": True})
    (parsed,) = Parser(checkpoint.folder, settings).parse(["The d\u2581o\u2581g \u2581 sleeps ."])
    assert words_of(parsed.tree) == ["The", "d\u2581o\u2581g", "\u2581", "sleeps", "."]
    assert not parsed.repairs


def test_a_translator_is_no_parser(tmp_path: Path, command_line: CommandLine) -> None:
    translator = make_checkpoint(tmp_path / "translator")
    refused = command_line.here("workflows.cli", "parse", str(translator.folder), text="A dog .\n")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is not a parser" in refused.stderr
    assert refused.stderr.endswith(" made by aiayn table4\n")
    refused = command_line.here("workflows.cli", "parse", str(tmp_path), text="A dog .\n")
    assert refused.returncode == 2
    assert "holds no model.safetensors" in refused.stderr
