"""Figures 3 to 5 of the paper from a trained model: what its heads attend to.

python -m workflows.attention_figures                                  # the newest model of Table 2 in runs/
python -m workflows.attention_figures table2/embedded/en-de-base       # a model by its name, or its folder
python -m workflows.attention_figures MODEL --sentence "..."           # a sentence of yours
python -m workflows.attention_figures --layer 2 --heads 1,3 --word it  # heads and word of yours
python -m workflows.attention_figures --word making --word its         # a word for Figure 3, and one for Figure 4
"""

import typer

from workflows.cli.console import help_text, run_app
from workflows.cli.figures import figures

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command(help=help_text(__doc__))(figures)

if __name__ == "__main__":
    run_app(app, "python -m workflows.attention_figures")
