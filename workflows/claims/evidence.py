"""What the claims are judged by: the tables, and what was counted, timed and trained beside them.

Steps while the DAG is drawn, artifacts in the stage that judges; what was left out is None or empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pipeline.attention.figures import Heads, Relations
from pipeline.complexity.attention_training import AttentionTraining
from pipeline.complexity.figures import CountedArguments, CountsArtifact, TimedArguments
from pipeline.evaluation.perplexity import LengthPerplexity
from pipeline.evaluation.search_choice import DecodingChoice
from pipeline.store.artifact import Artifact
from pipeline.store.artifacts import Checkpoint, EvaluationSet, Vocabulary
from workflows.engine.dag import Ref
from workflows.tables.measurements import Translation
from workflows.tables.table1 import Table1Artifact
from workflows.tables.table2 import Table2Artifact
from workflows.tables.table3 import Table3Artifact
from workflows.tables.table4 import Table4Artifact

T_co = TypeVar("T_co", bound=Artifact, covariant=True)


@dataclass(frozen=True)
class Tokenized:
    """An evaluation set with the vocabulary in whose tokens its sentences are counted."""

    text: Ref[EvaluationSet]
    vocabulary: Ref[Vocabulary]


@dataclass(frozen=True)
class Examined:
    """A translator whose heads were examined, and its dev set."""

    checkpoint: Ref[Checkpoint]
    dev: Tokenized
    heads: Ref[Heads]
    relations: Ref[Relations] | None
    """None where the text is not generated: only its grammar knows which words belong together."""


@dataclass(frozen=True)
class Trial(Generic[T_co]):
    """A training with one seed, whose last checkpoint is scored on the dev set, and what else is measured of it."""

    kind: str
    """What its seeds have in common; for extrapolation a name of `claims.layers.KINDS`."""
    name: str
    evaluation: Translation
    measured: Ref[T_co]


@dataclass(frozen=True)
class Evidence:
    """All that there is."""

    counts: Ref[CountsArtifact] | None = None
    table1: Ref[Table1Artifact] | None = None
    table2: Ref[Table2Artifact] | None = None
    is_of_other_text: bool = False
    """Whether the text is known not to be WMT's; Table 2 is then not made, for nothing in it could be compared."""
    table3: Ref[Table3Artifact] | None = None
    table4: Ref[Table4Artifact] | None = None
    trees: Tokenized | None = None
    """The test set of Table 4: sentences and trees."""
    counted: Ref[CountedArguments] | None = None
    timed: Ref[TimedArguments] | None = None
    functions: Sequence[Ref[AttentionTraining]] = ()
    extrapolation: Sequence[Trial[LengthPerplexity]] = ()
    """Perplexity on sentences longer than some are trained on."""
    averaging: Sequence[Trial[DecodingChoice]] = ()
    """The choice of a search for the average of several checkpoints."""
    examined: Examined | None = None
