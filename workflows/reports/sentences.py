"""Shows translations beside their references: the words that differ are marked, and the worst are found.

marked("Das alte Haus .", "Das Haus .")        # the words of each that the other lacks stand in <mark>
"""

from difflib import SequenceMatcher

from markupsafe import Markup, escape


def marked(text: str, other: str) -> Markup:
    """Returns `text` as HTML in which the words that are not in `other`, in the same order, are marked."""
    words, others = text.split(), other.split()
    blocks = SequenceMatcher(a=words, b=others, autojunk=False).get_matching_blocks()
    parts: list[Markup] = []
    at = 0
    for block in blocks:
        if block.a > at:
            parts.append(Markup("<mark>{}</mark>").format(" ".join(words[at : block.a])))
        if block.size:
            parts.append(escape(" ".join(words[block.a : block.a + block.size])))
        at = block.a + block.size
    return Markup(" ").join(parts)
