"""Our training loop inside a Ray Train worker, as `pipeline.training.on_ray` runs it, to measure what Ray costs.

One `TorchTrainer` lasts the whole benchmark. Its worker warms up, then waits for the number of updates of each round.
So it is measured like the other contenders: in a process that has trained before, on the same updates.
"""

import logging
from functools import partial
from typing import Any

import ray
from ray.train import LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.util.queue import Empty, Queue

from pipeline.environment import worker_environment
from workflows.benchmarks.training_contenders import OurLoop, TrainingContender, TrainingRound, TrainingWorkload, Work

POLL_S = 1.0
"""Interval at which a failed training is looked for while waiting for the worker."""


class OurLoopInRay(TrainingContender):
    """Our loop in a Ray Train worker, on a local Ray cluster that ends with the process."""

    def __init__(self, workload: TrainingWorkload) -> None:
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
        """Starts the training and waits until its worker has warmed up. Returns the name of the computation's type."""
        run_config: Any = RunConfig(  # type: ignore[call-arg]  # mypy reads the signature of Train V1
            storage_path=str(self.workload.run_folder / "ray"),
            logging_config=LoggingConfig(log_level="ERROR"),
            worker_runtime_env={"env_vars": worker_environment()},
        )
        loop: Any = partial(_serve, self.workload, self.requests, self.answers)
        self.training = ray.remote(num_cpus=0)(_fit).remote(loop, self.scaling, run_config)
        return str(self._answer())

    def round(self, n_updates: int) -> TrainingRound:
        """Times the next `n_updates` updates in the Ray Train worker."""
        self.requests.put(n_updates)
        done: TrainingRound = self._answer()
        return done

    def _answer(self) -> Any:
        """Returns the worker's next answer. Raises the error that ended the training, if any."""
        while True:
            try:
                return self.answers.get(timeout=POLL_S)
            except Empty:
                if ray.wait([self.training], timeout=0)[0]:
                    ray.get(self.training)

    def _train(self, n_updates: int) -> Work:
        raise NotImplementedError("the worker trains")


def _fit(loop: Any, scaling: ScalingConfig, run_config: Any) -> None:
    """Runs as a task, since it lasts as long as the training."""
    TorchTrainer(loop, scaling_config=scaling, run_config=run_config).fit()


def _serve(workload: TrainingWorkload, requests: Queue, answers: Queue) -> None:
    """Runs in the worker: warms up, then times the requested number of updates, round after round."""
    contender = OurLoop(workload)
    answers.put(contender.warm_up())
    while True:
        answers.put(contender.round(requests.get()))
