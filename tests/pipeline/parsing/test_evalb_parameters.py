"""pipeline.parsing.evalb_parameters: COLLINS.prm is the default, and files are read as EVALB reads them."""

import logging
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.parsing.evalb_parameters import COLLINS, EvalbParameters, read_parameters


def test_the_default_is_collins(data: Path) -> None:
    """The values that are built in are those of the file."""
    assert read_parameters(data / "evalb" / "COLLINS.prm") == COLLINS == EvalbParameters()


def test_every_parameter_is_read(tmp_path: Path) -> None:
    """Whatever white space separates; what is not named has EVALB's value, by which nothing is deleted."""
    (tmp_path / "all.prm").write_text(
        "# DELETE_LABEL no\nDEBUG 0\nMAX_ERROR 5 or so\nCUTOFF_LEN\t70\nLABELED 0   \nDELETE_LABEL TOP \r\n"
        "DELETE_LABEL   ,\nDELETE_LABEL_FOR_LENGTH -NONE-\nQUOTE_LABEL POS\nEQ_LABEL ADVP  PRT\nEQ_WORD a\tthe\nx\n"
    )
    assert read_parameters(tmp_path / "all.prm") == EvalbParameters(
        max_errors=5,
        cutoff_length=70,
        labeled=False,
        delete_labels=("TOP", ","),
        delete_labels_for_length=("-NONE-",),
        quote_labels=("POS",),
        equal_labels=(("ADVP", "PRT"),),
        equal_words=(("a", "the"),),
    )
    (tmp_path / "none.prm").write_text("")
    assert read_parameters(tmp_path / "none.prm") == EvalbParameters(
        delete_labels=(), delete_labels_for_length=(), equal_labels=()
    )


def test_what_is_not_understood_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One warning a line, and the other lines count; a file that cannot be read is an error."""
    (tmp_path / "odd.prm").write_text("DELETE_LABELS TOP\nEQ_LABEL a b c\nEQ_WORD a\nLABELED\nDELETE_LABEL X\n")
    with caplog.at_level(logging.WARNING):
        parameters = read_parameters(tmp_path / "odd.prm")
    assert [record.getMessage().partition(", ")[2] for record in caplog.records] == [
        "line 1: unknown keyword 'DELETE_LABELS'; ignored",
        "line 2: EQ_LABEL needs two values; ignored",
        "line 3: EQ_WORD needs two values; ignored",
        "line 4: LABELED has no value; ignored",
    ]
    assert (parameters.delete_labels, parameters.equal_labels, parameters.labeled) == (("X",), (), True)
    with pytest.raises(UserError, match=r"cannot read .*none.prm"):
        read_parameters(tmp_path / "none.prm")
