"""How fast this project runs on this machine, compared with other libraries: `aiayn bench`, one command per benchmark.

aiayn bench train                       a training step, in real target tokens per second
aiayn bench train --size base --json
aiayn bench scale                       the same step by 1, 2, 4 and 8 workers: computing, waiting, exchanging
aiayn bench decode model --src test.en --ref test.de --lang de     beam search, in sentences per second
aiayn bench prepare --pairs 4500000     text to token ids, in pairs per second
"""

import typer

from workflows.benchmarks import decoding, preparation, training
from workflows.benchmarks.scaling import command as scaling
from workflows.console.command import help_text

app = typer.Typer(no_args_is_help=True, help=help_text(__doc__), rich_markup_mode=None)
app.command("train")(training.train)
app.command("scale")(scaling.scale)
app.command("decode")(decoding.decode)
app.command("prepare")(preparation.prepare)
