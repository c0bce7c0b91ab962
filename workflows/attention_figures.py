"""Figures 3 to 5 of the paper from a trained model: the attention of its heads.

python -m workflows.attention_figures                                  # the newest model of Table 2 in runs/
python -m workflows.attention_figures table2/embedded/en-de-base       # a model by name or folder
python -m workflows.attention_figures MODEL --sentence "..."           # your sentence
python -m workflows.attention_figures --layer 2 --heads 1,3 --word it  # your heads and word
python -m workflows.attention_figures --word making --word its         # a word for Figure 3, and one for Figure 4
"""

from workflows.cli.console import App, help_text, run_app
from workflows.cli.figures import figures

app = App()
app.command(help=help_text(__doc__))(figures)

if __name__ == "__main__":
    run_app(app, "python -m workflows.attention_figures")
