"""Table 3 of the paper (§6.2): variations of the base Transformer. So far their parameter counts, nothing trained.

python -m workflows.reproduce_table3 --params                     # counted beside the paper's counts, seconds
python -m workflows.reproduce_table3 --params --rows A,B1,big     # some rows; a letter is a group
python -m workflows.reproduce_table3 --params --json
"""

import json
from typing import Annotated

import typer

from model.config import BASE
from pipeline.errors import UserError
from workflows import table3
from workflows.command import console, help_text, run_app

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(help=help_text(__doc__))
def main(
    params: Annotated[bool, typer.Option("--params", help="Count the parameters of each row and exit.")] = False,
    rows: Annotated[str | None, typer.Option(help="Rows or groups of rows, e.g. A,B1,big.  [default: all]")] = None,
    vocabulary_size: Annotated[
        int, typer.Option(min=1, max=10_000_000, help="Rows of the embedding; the paper prints none for Table 3.")
    ] = BASE.vocabulary_size,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Prints the parameter counts."""
    chosen = table3.variations(rows)
    if not params:
        raise UserError("the rows of Table 3 cannot be trained yet; --params counts their parameters")
    counted = table3.parameter_rows(vocabulary_size, chosen)
    if as_json:
        print(json.dumps(table3.to_json(vocabulary_size, counted), ensure_ascii=False, indent=2))
    else:
        console.print(table3.render_terminal(vocabulary_size, counted))


if __name__ == "__main__":
    run_app(app, "python -m workflows.reproduce_table3")
