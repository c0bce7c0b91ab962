"""workflows.engine.cluster: the dashboard; a stage's function in a process of its own, with a share of a GPU."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pipeline.store.artifact import Context
from workflows.engine.cluster import on_gpu

LOOK = """
from urllib.request import urlopen
from workflows.engine.cluster import cluster

with cluster("local") as url:
    print(url, urlopen(url).status if url else "")
"""


def _describe(context: Context, word: str) -> dict[str, Any]:
    """Stands for a stage: says where it ran."""
    context.progress(1, 2, word)
    return {"folder": context.folder, "device": context.device, "word": word}


def test_function_gets_its_folder_and_the_device(ray_cluster: None, tmp_path: Path) -> None:
    """With no share of a GPU it computes on the CPU; its peak memory comes back with its result."""
    result, peak_bytes = on_gpu(0, _describe, Context(tmp_path), "pairs")
    assert result == {"folder": tmp_path, "device": "cpu", "word": "pairs"}
    assert 1e6 < peak_bytes < 1e11


def test_a_cluster_of_ones_own_has_the_dashboard_that_is_installed() -> None:
    """With the extra `cluster` it answers on the loopback interface; without it, there is none."""
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    expected = r"http://127\.0\.0\.1:\d+ 200" if find_spec("aiohttp_cors") else ""
    assert re.fullmatch(expected, done.stdout.strip())
