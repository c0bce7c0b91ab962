"""Random trees for hypothesis: unary chains, punctuation, and labels that contain each other."""

from hypothesis import strategies as st

from pipeline.parsing.trees import Tree

LABELS = ("S", "SBAR", "NP", "NX", "VP", "PP", "ADVP", "PRT", "X", "XX", "PRT|ADVP")
TAGS = ("NN", "NNP", "VB", "DT", "PRP$", ",", ".", ":", "``", "''", "-LRB-", "$")
WORDS = ("a", "dog", "XX", "X", ",", ".", "--", "``", "'", "-LRB-", "1\\/2", "é", "U.S.", "$", "=")


def trees(labels: tuple[str, ...] = LABELS) -> st.SearchStrategy[Tree]:
    """Draws constituents over tagged words, few of them single words."""
    tagged = st.builds(lambda tag, word: Tree(tag, word=word), st.sampled_from(TAGS), st.sampled_from(WORDS))
    return st.recursive(
        tagged,
        lambda below: st.builds(Tree, st.sampled_from(labels), st.lists(below, min_size=1, max_size=4)),
        max_leaves=12,
    )
