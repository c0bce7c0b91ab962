"""pipeline.parsing.treebank: three layouts, gold and silver trees, and errors with file and line."""

import gzip
from pathlib import Path

import pytest

from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.parsing.recombination import RecombinationSettings
from pipeline.parsing.splits import SPLITS, splits_of
from pipeline.parsing.treebank import TreebankSettings
from pipeline.text.lines import read_lines, write_lines
from pipeline.text.vocabulary import SPACE_SIGN
from tests.support.read_text import Text, read_text

TREE = "( (S (NP-SBJ (NN {}) (-NONE- *)) (VP (VBZ is) (ADJP-PRD (JJ red))) (. .)) )"
SILVER = "(S1 (S (NP (NN silver{})) (VP (VBZ is) (NP (NN new)))))"


@pytest.fixture
def wsj(tmp_path: Path) -> Path:
    """All 25 sections, two files each, some packed, pretty-printed or on one line. Two trees have no words."""
    folder = tmp_path / "ptb" / "wsj"
    for section in range(25):
        below = folder / f"{section:02d}"
        below.mkdir(parents=True)
        first, second = (TREE.format(f"s{section}{name}") for name in "ab")
        (below / f"wsj_{section:02d}01.mrg").write_text("\n" + first.replace(" (", "\n    (") + "\n\n")
        empty = "( (S (NP (-NONE- *)))) " if section in (3, 23) else ""
        (below / f"wsj_{section:02d}02.mrg.gz").write_bytes(gzip.compress(f"{empty}{second} {second}\n".encode()))
        (below / "README").write_text("not a tree")
    return folder


def lines(text: Text, split: str, side: int = 0) -> list[str]:
    return [pair[side] for pair in text.pairs(split)]


def names(text: Text, split: str) -> list[str]:
    return [line.split()[0] for line in lines(text, split)]


@pytest.mark.parametrize("above", ["", "..", "../.."])
def test_sections_of_the_wall_street_journal(wsj: Path, above: str, here: Context, tmp_path: Path) -> None:
    """Sections 2 to 21 train, 22 is dev, 23 test, from the sections' folder or a folder above it."""
    if above == "../..":
        (tmp_path / "ldc" / "parsed").mkdir(parents=True)
        wsj.parent.rename(tmp_path / "ldc" / "parsed" / "mrg")
        wsj = tmp_path / "ldc"
    text = read_text(here.folder, TreebankSettings(treebank=wsj.parent if above == ".." else wsj))
    assert names(text, "train") == [f"s{n}{name}" for n in range(2, 22) for name in "abb"]
    assert (names(text, "dev"), names(text, "test")) == (["s22a", "s22b", "s22b"], ["s23a", "s23b", "s23b"])
    assert text.corpus.languages == ("en", "trees")
    assert lines(text, "dev")[0] == "s22a is red ."
    assert lines(text, "dev", 1)[0] == "(S (NP XX )NP (VP XX (ADJP XX )ADJP )VP XX )S"
    assert next(read_lines(text.sets["test"].gold_trees)) == "(S (NP (NN s23a)) (VP (VBZ is) (ADJP (JJ red))) (. .))"
    assert text.corpus.symbols == ("(ADJP", "(NP", "(S", "(VP", ")ADJP", ")NP", ")S", ")VP", "XX")
    assert text.corpus.read_json("corpus.json")["report"]["without_words"] == 1
    assert [text.sets[name].load().report["without_words"] for name in ("dev", "test")] == [0, 1]
    files = [sorted(path.name for path in part.folder.glob("[!.]*")) for part in (text.corpus, text.sets["test"])]
    assert files[0] == ["00000.en", "00000.trees", "corpus.json"]
    assert files[1] == ["evaluation_set.json", "gold.trees", "test.en", "test.trees"]


def test_a_folder_with_a_table_is_split_between_texts(tmp_path: Path, here: Context) -> None:
    """Texts stay whole, in the table's order, even across files."""
    folder = tmp_path / "bank"
    folder.mkdir()
    trees = [TREE.format(f"t{i}") for i in range(20)]
    write_lines(folder / "a.mrg", trees[:3])
    write_lines(folder / "b.mrg", trees[3:19])
    write_lines(folder / "c.mrg", trees[19:])
    write_lines(folder / "files.tsv", [f"text{i}\t{size}" for i, size in enumerate([4, 3, 8, 2, 1, 1, 1])])
    text = read_text(here.folder, TreebankSettings(treebank=folder))
    assert [names(text, split) for split in SPLITS] == [[f"t{i}" for i in range(17)], ["t17"], ["t18", "t19"]]
    write_lines(folder / "files.tsv", ["a\t19"])
    with pytest.raises(UserError, match=r"files.tsv counts 19 trees, but the .mrg files of .* hold 20"):
        splits_of(folder)
    write_lines(folder / "files.tsv", ["a\t19", "b 1"])
    with pytest.raises(UserError, match=r"files.tsv, line 2: 'b 1' is not a name, a tab and a number of trees"):
        splits_of(folder)


def test_a_file_is_split_by_position(tmp_path: Path, here: Context) -> None:
    write_lines(tmp_path / "all", [" ".join(TREE.format(f"t{i}") for i in (n, n + 1)) for n in range(0, 50, 2)])
    text = read_text(here.folder, TreebankSettings(treebank=tmp_path / "all"))
    assert [len(names(text, split)) for split in SPLITS] == [40, 5, 5]
    assert names(text, "dev") == [f"t{i}" for i in range(40, 45)]
    write_lines(tmp_path / "few", [TREE.format("t")])
    with pytest.raises(UserError, match=r"few has no tree with a word for 'dev'; use a larger treebank"):
        read_text(tmp_path / "few_text", TreebankSettings(treebank=tmp_path / "few"))


@pytest.mark.parametrize("sign", ["\u2028", "\x85", "\x1f", "\u00a0", "\u2581"])
def test_a_word_with_a_space_inside_stays_one_word(tmp_path: Path, here: Context, sign: str) -> None:
    """Neither cleaning nor the vocabulary splits it, so words match their symbols. The gold trees keep the space."""
    file = tmp_path / "trees.mrg"
    write_lines(file, [TREE.format(f"a{sign}b{sign}{i}") for i in range(20)])
    text = read_text(here.folder, TreebankSettings(treebank=file))
    for split in SPLITS:
        for words in lines(text, split):
            assert words.replace(SPACE_SIGN, " ").split()[1:] == ["is", "red", "."]
        assert {symbols.split().count("XX") for symbols in lines(text, split, 1)} == {4}
    assert f"(NN a{sign}b{sign}" in next(read_lines(text.sets["test"].gold_trees))


def test_tags_and_silver_and_recombined_trees(wsj: Path, tmp_path: Path, here: Context) -> None:
    """Words are written as tags in all splits. Silver files follow the gold trees in order, and recombined trees come
    last, each a collection, in training only, without new symbols."""
    write_lines(tmp_path / "one", [SILVER.format(i) for i in range(7)])
    (tmp_path / "two").write_text(SILVER.format(7).replace(" ", "\n"))
    recombination = RecombinationSettings(trees=11, constituents=0)
    silver = (tmp_path / "one", tmp_path / "two")
    settings = TreebankSettings(treebank=wsj, silver=silver, write_tags=True, recombination=recombination)
    text = read_text(here.folder, settings)
    assert names(text, "train")[60:68] == [f"silver{i}" for i in range(8)]
    assert lines(text, "train", 1)[67] == "(S (NP XX/NN )NP (VP XX/VBZ (NP XX/NN )NP )VP )S"
    assert lines(text, "dev", 1)[0] == "(S (NP XX/NN )NP (VP XX/VBZ (ADJP XX/JJ )ADJP )VP XX/. )S"
    brackets = [bracket + label for bracket in "()" for label in ("S", "NP", "VP", "ADJP")]
    assert [*text.corpus.symbols] == sorted(["XX", "XX/NN", "XX/VBZ", "XX/JJ", "XX/.", *brackets])
    shards = [(shard.pairs, shard.collection) for shard in text.corpus.shards]
    assert shards == [(60, "treebank"), (7, "one"), (1, "two"), (11, "recombined")]
    assert not set(lines(text, "train")[:60]) & {line for split in ("dev", "test") for line in lines(text, split)}
    held_out = {line.split()[0] for split in ("dev", "test") for line in lines(text, split)}
    assert not held_out & {word for line in lines(text, "train") for word in line.split()}
    write_lines(tmp_path / "two", [SILVER.format(0).replace("NN", "NNS")])
    with pytest.raises(UserError, match=r"two, line 1: no training tree of the treebank has the tag 'NNS'"):
        read_text(tmp_path / "other", settings)


def test_identity_is_of_content(wsj: Path, tmp_path: Path) -> None:
    """Moving a treebank keeps its identity. Renaming a section, adding trees or changing settings changes it."""
    first = TreebankSettings(treebank=wsj).identity()
    moved = wsj.rename(tmp_path / "moved")
    assert TreebankSettings(treebank=moved).identity() == first
    write_lines(tmp_path / "silver", [SILVER.format(0)])
    others = [TreebankSettings(treebank=moved, silver=(tmp_path / "silver",)).identity()]
    (moved / "20").rename(moved / "25")
    others.append(TreebankSettings(treebank=moved).identity())
    path = moved / "07" / "wsj_0701.mrg"
    path.write_text(path.read_text() + TREE.format("more"))
    others.append(TreebankSettings(treebank=moved).identity())
    tagged = TreebankSettings(treebank=moved, write_tags=True)
    others.append(tagged.identity())
    for constituents in (0.1, 0.2):
        recombination = RecombinationSettings(trees=5, constituents=constituents)
        others.append(tagged.model_copy(update={"recombination": recombination}).identity())
    assert len({str(identity) for identity in [first, *others]}) == 7
    with pytest.raises(UserError, match="none is not a treebank"):
        TreebankSettings(treebank=tmp_path / "none").identity()


def test_a_section_changes_only_the_text_that_it_is_in(wsj: Path, tmp_path: Path) -> None:
    """A corrected test set therefore retrains nothing. In a single file, split by tree count, all texts change."""

    def identities(treebank: Path) -> list[str]:
        return [str(text.identity()) for text in TreebankSettings(treebank=treebank).texts()]

    def changed(treebank: Path, path: Path) -> list[bool]:
        before = identities(treebank)
        path.write_text(path.read_text() + TREE.format("more"))
        return [one != other for one, other in zip(before, identities(treebank), strict=True)]

    assert changed(wsj, wsj / "24" / "wsj_2401.mrg") == [False, False, False]
    assert changed(wsj, wsj / "23" / "wsj_2301.mrg") == [False, False, True]
    assert changed(wsj, wsj / "22" / "wsj_2201.mrg") == [False, True, False]
    assert changed(wsj, wsj / "02" / "wsj_0201.mrg") == [True, False, False]
    write_lines(tmp_path / "single", [TREE.format(f"t{i}") for i in range(20)])
    assert changed(tmp_path / "single", tmp_path / "single") == [True, True, True]


def test_silver_trees_that_are_held_out_are_refused(wsj: Path, tmp_path: Path) -> None:
    TreebankSettings(treebank=wsj, silver=(wsj / "02" / "wsj_0201.mrg",)).texts()
    write_lines(tmp_path / "single", [TREE.format(f"t{i}") for i in range(20)])
    for treebank, silver in ((wsj, wsj / "23" / "wsj_2301.mrg"), (tmp_path / "single", tmp_path / "single")):
        with pytest.raises(UserError, match=rf"silver and dev or test have the same text \({silver}\)"):
            TreebankSettings(treebank=treebank, silver=(silver,)).texts()
