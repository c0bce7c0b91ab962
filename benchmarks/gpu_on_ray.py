"""The step of `benchmarks.gpu` that goes through Ray: training on one GPU and on all of them, then decoding.

Text, 20 updates, their checkpoint and its translation are made for each number of GPUs; with the exact reduction, both
end in the same weights. Two actors a GPU translate.
"""

import tempfile
from pathlib import Path
from typing import Any

from pipeline.corpora.embedded import EmbeddedSettings
from pipeline.errors import UserError
from pipeline.settings import AveragingSettings, DecodingSettings, Device, TrainingSettings
from pipeline.store.artifacts import Hypotheses, TrainingRun
from workflows import stages
from workflows.engine.dag import Step
from workflows.profiles.translation import EMBEDDED

PAIR, UPDATES = "en-de", 20


def measure(on_gpus: bool) -> dict[str, Any]:
    """Returns rates by the number of workers. Raises UserError if they end in different weights."""
    import ray

    from pipeline.store.store import Store
    from workflows.engine import runner
    from workflows.engine.cluster import cluster

    with tempfile.TemporaryDirectory(prefix="aiayn-bench-") as folder, cluster(None):
        # Where CPUs stand in for GPUs, two do.
        devices = ray.cluster_resources()["GPU"] if on_gpus else min(ray.cluster_resources()["CPU"], 2)
        most = min(int(devices), TrainingSettings().micro_batches)
        update_s, sentences_s, weights = {}, {}, set()
        for workers in sorted({1, most}):
            run, hypotheses = _steps(workers, "gpu" if on_gpus else "cpu")
            store = Store(Path(folder) / str(workers))  # in one store, the second would be the first
            runner.run([hypotheses], store)
            trained, decoded = run.published(store), hypotheses.published(store).load().test_sets["test"]
            weights.add((trained.folder / "checkpoints" / f"{UPDATES:08d}" / "model.safetensors").read_bytes())
            update_s[workers] = trained.load().train_s / UPDATES
            sentences_s[workers] = decoded.sentences / decoded.seconds
    if len(weights) > 1:
        raise UserError(f"{UPDATES} updates with the exact reduction end in other weights on 1 and on {most} devices")
    return {"workers": [*update_s], "update_s": update_s, "actors_a_device": 2, "sentences_s": sentences_s}


def _steps(workers: int, device: Device) -> tuple[Step[TrainingRun], Step[Hypotheses]]:
    corpora = {PAIR: EmbeddedSettings(train_pairs=8_000, test_pairs=100)}
    text = stages.prepared(EMBEDDED.model_copy(update={"corpora": corpora}), PAIR)
    recipe = EMBEDDED.recipes["base"].training
    changes = {"micro_batches": 8, "budget_tokens": 8 * recipe.budget_tokens, "exact_reduction": True, "device": device}
    kept = {"updates": UPDATES, "checkpoint_updates": UPDATES, "keep_checkpoints": 1, "workers": workers}
    run = stages.TRAIN("train", text.dataset, recipe.model_copy(update=changes | kept))
    checkpoint = stages.AVERAGE("average", run, AveragingSettings(last=1))
    decoding = DecodingSettings(workers=2 * workers, device=device)
    return run, stages.DECODE("decode", checkpoint, text.corpus, decoding)
