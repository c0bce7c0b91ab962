import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def lock_holder(target: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts a process that holds the lock until a line arrives on its standard input."""
    script = (
        "import sys; from pathlib import Path; from pipeline.store.locks import FileLock\n"
        "with FileLock(Path(sys.argv[1]), 'train') as lock:\n"
        "    print(lock.take(), flush=True); sys.stdin.readline()"
    )
    command = [sys.executable, "-c", script, str(target)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "None\n"
        yield process
    finally:
        process.kill()
        process.communicate()
