"""Our training loop inside a Ray Train worker, as `pipeline.training.on_ray` runs it: what Ray adds to an update.

One `TorchTrainer` lasts the whole benchmark. Its worker warms up, then waits for the number of updates of each round,
so that it is measured as the other contenders are: a process that has trained before, on the updates they train on.
"""

import logging
from functools import partial
from typing import Any

import ray
from ray.train import LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.util.queue import Empty, Queue

from pipeline.hardware import KEEP_MEMORY
from workflows.benchmarks.training_contenders import Contender, Ours, Round, Work, Workload

LOOK_S = 1.0
"""While waiting for the worker, how often to see whether the training has failed."""


class OursInRay(Contender):
    """Needs Ray; starts a cluster of this machine alone, which ends with the process."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
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
        self.requests, self.answers = Queue(), Queue()

    def warm_up(self) -> str:
        """Starts the training and waits until its worker has warmed up."""
        run_config: Any = RunConfig(  # type: ignore[call-arg]  # mypy reads the signature of Train V1
            storage_path=str(self.workload.run_folder / "ray"),
            logging_config=LoggingConfig(log_level="ERROR"),
            worker_runtime_env={"env_vars": KEEP_MEMORY},
        )
        loop: Any = partial(_serve, self.workload, self.requests, self.answers)
        self.training = ray.remote(num_cpus=0)(_fit).remote(loop, self.scaling, run_config)
        return str(self._answer())

    def round(self, n_updates: int) -> Round:
        """The next updates in the worker of Ray Train."""
        self.requests.put(n_updates)
        done: Round = self._answer()
        return done

    def _answer(self) -> Any:
        """The worker's next answer. Raises what ended the training."""
        while True:
            try:
                return self.answers.get(timeout=LOOK_S)
            except Empty:
                if ray.wait([self.training], timeout=0)[0]:
                    ray.get(self.training)

    def _train(self, n_updates: int) -> Work:
        raise NotImplementedError("the worker trains")


def _fit(loop: Any, scaling: ScalingConfig, run_config: Any) -> None:
    """In a task, since it lasts as long as the training."""
    TorchTrainer(loop, scaling_config=scaling, run_config=run_config).fit()


def _serve(workload: Workload, requests: Queue, answers: Queue) -> None:
    """In the worker: warms up, then times as many updates as it is asked for, again and again."""
    contender = Ours(workload)
    answers.put(contender.warm_up())
    while True:
        answers.put(contender.round(requests.get()))
