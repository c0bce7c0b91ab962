"""How fast this machine is, beside other people's code on it: `aiayn bench`, one command a benchmark.

aiayn bench train                       a training step, in real target tokens a second
aiayn bench train --size base --json
"""

import typer

from workflows import benchmark_training
from workflows.command import help_text

app = typer.Typer(no_args_is_help=True, help=help_text(__doc__), rich_markup_mode=None)
app.command("train")(benchmark_training.train)


@app.callback()
def _bench() -> None:
    """Keeps `train` a command of its own while there is no other."""
