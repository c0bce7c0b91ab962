"""The splits of a dataset that a run trains and validates on, checked against its model."""

from typing import NamedTuple

from model.config import TransformerConfig
from pipeline.errors import UserError
from pipeline.settings import LONGEST_TOKENS
from pipeline.store.artifacts import EncodedDataset
from pipeline.text.encoding import EncodedSplit


class Data(NamedTuple):
    """The splits of a run."""

    train: EncodedSplit
    dev: EncodedSplit
    longest_tokens: int
    """The longest length that the model will see."""

    @classmethod
    def open(cls, dataset: EncodedDataset, model: TransformerConfig) -> "Data":
        """Opens a dataset. Raises UserError if it does not fit the model, or no dev pair is short enough."""
        dataset.check_vocabulary(model.vocabulary_size)
        train, dev = EncodedSplit.open(dataset, "train"), EncodedSplit.open(dataset, "dev")
        rows = dev.computed_rows
        if not len(rows):
            raise UserError(
                f"{dataset.folder} has no dev pair of at most {LONGEST_TOKENS} tokens for validation; "
                "add dev text, or split its lines"
            )
        longest_tokens = max(train.longest_tokens, *(int(side.max()) for side in dev.lengths_of(rows)))
        if model.positions == "learned" and longest_tokens > model.max_positions:
            raise UserError(
                f"a sentence has {longest_tokens} tokens, but learned positions end at max_positions = "
                f"{model.max_positions}; raise max_positions, lower the encoding's max_tokens, or split the longest "
                "lines of the dev text"
            )
        return cls(train, dev, longest_tokens)

    @property
    def dev_left_out(self) -> int:
        """The number of dev pairs too long to be computed."""
        return len(self.dev) - len(self.dev.computed_rows)
