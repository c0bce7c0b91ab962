"""The experiments, a module of `workflows` each, as the folder has them: tests of all of them include a new one."""

from pathlib import Path

import workflows

EXPERIMENTS = sorted(path.stem for path in Path(workflows.__path__[0]).glob("reproduce_*.py"))
