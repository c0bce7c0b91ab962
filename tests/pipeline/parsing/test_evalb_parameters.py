"""pipeline.parsing.evalb_parameters: COLLINS.prm is the default, and files are read as EVALB reads them."""

from pathlib import Path

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
