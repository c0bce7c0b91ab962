"""The choice of victims by Ray's process titles and by the seed."""

from collections import Counter
from random import Random

import psutil
import pytest

from tests.chaos.victims import Kind, Victim, choose, doing, kind_of


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("ray::RayTrainWorker", Kind.TRAINING_WORKER),
        ("ray::single_worker", Kind.TRAINING_WORKER),
        ("ray::TrainController.run", Kind.CONTROLLER),
        ("ray::DecodingWorker.translate", Kind.DECODING_WORKER),
        ("ray::encode en-de", Kind.PREPARATION),
        ("ray::write_shard", Kind.PREPARATION),
        ("ray::train en-de base", Kind.STAGE),
        ("ray::Board", Kind.BOARD),
        ("ray::IDLE", None),
        ("ray::PlacementGroupCleaner", None),
        ("train en-de base", None),
    ],
)
def test_a_title_identifies_the_kind_of_process(title: str, kind: Kind | None) -> None:
    """Ray's own services, idle processes and foreign processes are never victims."""
    assert kind_of(title) is kind


def test_the_kind_with_the_fewest_kills_is_hit_and_the_seed_decides_the_rest() -> None:
    """The same seed, kills and processes give the same victim; other seeds reach every process of the rarest kinds."""
    process = psutil.Process()
    alive = [
        Victim(kind, title, process)
        for kind, title in [
            (Kind.DRIVER, "driver"),
            (Kind.STAGE, "train en-de base"),
            (Kind.STAGE, "train en-de big"),
            (Kind.CONTROLLER, "TrainController.run"),
        ]
    ]
    kills = Counter({Kind.DRIVER: 2, Kind.STAGE: 1, Kind.CONTROLLER: 1})
    assert choose(Random("7 1"), alive, kills) == choose(Random("7 1"), alive, kills)
    chosen = {choose(Random(f"{seed} 1"), alive, kills).title for seed in range(50)}
    assert chosen == {"train en-de base", "train en-de big", "TrainController.run"}
    assert doing(alive) == "train en-de base, train en-de big"
