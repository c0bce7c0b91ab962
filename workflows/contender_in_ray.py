"""Our training loop inside a Ray Train worker, as `pipeline.training` runs it: what Ray adds to an update.

A round is a `TorchTrainer` of its own, whose worker warms up and then times the same updates as the other contenders.
"""

import logging
from functools import partial
from typing import Any

import ray
from ray.train import LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from pipeline.hardware import KEEP_MEMORY
from workflows.contenders import Contender, Ours, Round, Work, Workload


class OursInRay(Contender):
    """Needs Ray; starts a cluster of this machine alone, which ends with the process."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.done = 1  # the update that warms up
        self.dtype = Ours(workload).dtype
        n_gpus = int(workload.device == "gpu")
        ray.init(
            address="local",
            num_cpus=workload.threads,
            num_gpus=n_gpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        self.scaling = ScalingConfig(
            num_workers=1,
            use_gpu=bool(n_gpus),
            resources_per_worker={"CPU": workload.threads, **({"GPU": 1} if n_gpus else {})},
        )

    def warm_up(self) -> str:
        """Nothing yet: each round's worker warms up."""
        return str(self.dtype).removeprefix("torch.")

    def round(self, n_updates: int) -> Round:
        """The next updates in a worker of Ray Train; its start is not timed."""
        loop: Any = partial(_round, self.workload, self.done, n_updates)
        run_config: Any = RunConfig(  # type: ignore[call-arg]  # mypy reads the signature of Train V1
            storage_path=str(self.workload.run_folder / "ray"),
            logging_config=LoggingConfig(log_level="ERROR"),
            worker_runtime_env={"env_vars": KEEP_MEMORY},
        )
        result: Any = TorchTrainer(loop, scaling_config=self.scaling, run_config=run_config).fit()
        self.done += n_updates
        done: Round = result.return_value
        return done

    def _train(self, n_updates: int) -> Work:
        raise NotImplementedError("the worker trains")


def _round(workload: Workload, first: int, n_updates: int) -> Round:
    """In the worker: updates `first` and on, counted from 0, behind one that warms up."""
    contender = Ours(workload)
    contender.training.state.update = first - 1
    contender.warm_up()
    return contender.round(n_updates)
