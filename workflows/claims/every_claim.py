"""All claims of the paper in its order, including those that nothing tests yet."""

from collections.abc import Sequence

from workflows.claims import comparisons, competitors, functions, paths, timings, translators, variations
from workflows.claims.claim import Claim

WAITING: tuple[Claim, ...] = (
    Claim(
        "1",
        "recurrence precludes parallelization within training examples",
        "speed of training",
        lacks="recurrent layers timed over sentence length without the additive attention of their model",
    ),
    Claim(
        "3.2.2",
        "with a single head, averaging inhibits attending to several positions at once",
        "competitors",
        lacks="a task that needs two positions at once, learned with one head and with several",
    ),
    Claim(
        "3.5",
        "sinusoids let the model easily learn to attend by relative positions",
        "heads",
        lacks="a control: heads of models without positions",
    ),
    Claim(
        "6.3",
        "in contrast to recurrent sequence-to-sequence models, it parses well after training on little data",
        "competitors",
        lacks="a recurrent parser, trained on the same trees",
    ),
)
"""Claims that nothing here tests yet."""


def _place(claim: Claim) -> tuple[int, list[int], str]:
    """Returns a sort key in the paper's order: abstract, sections, tables, figures, then controls."""
    section = claim.section
    part = 0 if section == "abstract" else 1 if section[0].isdigit() else 3 if section == variations.CONTROL else 2
    return part, [int(number) for number in section.split(".") if number.isdigit()], section


CLAIMS: Sequence[Claim] = sorted(
    (
        *WAITING,
        *competitors.CLAIMS,
        *functions.CLAIMS,
        *paths.CLAIMS,
        *timings.CLAIMS,
        *translators.CLAIMS,
        *variations.CLAIMS,
        *comparisons.TABLE_2,
        *comparisons.TABLE_4,
    ),
    key=_place,
)
SECTIONS = tuple(dict.fromkeys(claim.section for claim in CLAIMS))
