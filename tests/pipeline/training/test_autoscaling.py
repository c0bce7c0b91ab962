"""A run on a real cluster whose autoscaler starts with a head node only and adds the machine that the workers need.

pytest -m slow tests/pipeline/training/test_autoscaling.py

The autoscaler is Ray's own, with the provider that starts more nodes on this machine. Their GPUs are only counted.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pipeline.hardware import LOGICAL_GPUS
from pipeline.store.artifacts import EncodedDataset
from tests.support.tiny_training import TINY, free_port, published
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(900)]

HEAD_ID = "f" * 51 + "00000"
PATIENCE_S = 180
COMMANDS = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
SETTINGS = f"""
vocabulary.size = {TINY.model.vocabulary_size}
[recipes.base.training]
model = {{n_layers = 1, d_model = 32, d_ff = 64, n_heads = 2, d_k = 16, d_v = 16}}
updates = 15
budget_tokens = 2400
dtype = "float32"
checkpoint_updates = 3
validation_updates = 3
device = "gpu"
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A head node with Ray's autoscaler, which may add one machine with two GPUs."""
    port = free_port()
    config = {
        "cluster_name": "growing",
        "max_workers": 1,
        "provider": {
            "type": "external",  # "fake_multinode" reads a file that Ray's wheel lacks
            "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "launch_multiple": True,
            "head_node_id": HEAD_ID,
            "gcs_address": f"127.0.0.1:{port}",
        },
        "auth": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 10,
        "docker": {},
        **{f"{phase}_commands": [] for phase in COMMANDS},
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
            "gpu": {"resources": {"CPU": 2, "GPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 1},
        },
    }
    (tmp_path / "cluster.yaml").write_text(json.dumps(config))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    # Set by `ray up` and required by the provider.
    of_launcher = {"RAY_enable_autoscaler_v2": "1", "RAY_CLOUD_INSTANCE_ID": HEAD_ID, "RAY_NODE_TYPE_NAME": "head"}
    of_provider = {"RAY_FAKE_CLUSTER": "1", "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID}
    folder = tempfile.mkdtemp(prefix="growing-")  # short, for the paths of sockets
    variables = {**kept, **of_launcher, **of_provider, LOGICAL_GPUS: "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"]
    command += ["--node-ip-address=127.0.0.1", "--num-cpus=1", f"--temp-dir={folder}", "--include-dashboard=False"]
    command += [f"--autoscaling-config={tmp_path / 'cluster.yaml'}", "--disable-usage-stats"]
    with (tmp_path / "head").open("w") as log:
        head = subprocess.Popen(command, env=variables, stdout=log, stderr=subprocess.STDOUT)
    printed = (tmp_path / "head").read_text
    until(lambda: "Ray runtime started" in printed(), PATIENCE_S, printed, head)
    yield f"127.0.0.1:{port}"
    processes = [psutil.Process(head.pid), *psutil.Process(head.pid).children(recursive=True)]
    for process in processes:
        process.kill()
    psutil.wait_procs(processes, 20)
    shutil.rmtree(folder, ignore_errors=True)


def test_workers_wait_for_the_machine_that_an_autoscaler_adds(
    address: str, dataset: EncodedDataset, tmp_path: Path
) -> None:
    """Two workers on GPUs are requested on a cluster without any: a warning says that the run waits, and it trains."""
    (tmp_path / "settings.toml").write_text(SETTINGS)
    text = published(dataset, tmp_path / "dataset").folder
    options = ["--workers", "2", "--config", str(tmp_path / "settings.toml"), "--address", address]
    command = [sys.executable, "-m", "workflows.cli", "train", str(text), "--out", str(tmp_path / "out")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run([*command, *options], env=kept, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"warning: 2 training workers with 1 CPU and 1 GPU each do not fit .* for 0; wait", done.stdout)
    (segment,) = json.loads((tmp_path / "out" / "run.json").read_text())["segments"]
    assert sum(device["count"] for device in segment["devices"]) == 2
