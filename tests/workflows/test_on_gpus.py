"""Training through Ray on one GPU and on all GPUs, then decoding by two actors per GPU; or the same on two CPUs.

`make gpu` runs it where Ray is installed.
"""

from pathlib import Path

import pytest

ray = pytest.importorskip("ray", exc_type=ImportError)

from pipeline.corpora.embedded import EmbeddedSettings  # noqa: E402
from pipeline.settings import AveragingSettings, DecodingSettings  # noqa: E402
from pipeline.store.store import Store  # noqa: E402
from workflows import stages  # noqa: E402
from workflows.engine import runner  # noqa: E402
from workflows.engine.cluster import cluster  # noqa: E402
from workflows.profiles.translation import EMBEDDED  # noqa: E402

PAIR, UPDATES = "en-de", 20


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(900)
def test_any_number_of_gpus_ends_in_the_same_weights(device: str, tmp_path: Path) -> None:
    """By exact reduction, weights do not depend on the number of workers. As many actors as fit translate."""
    corpora = {PAIR: EmbeddedSettings(train_pairs=8_000, test_pairs=100)}
    recipe, on = EMBEDDED.recipes["base"].training, "gpu" if device == "cuda" else "cpu"
    settings = {
        **{"budget_tokens": 8 * recipe.budget_tokens, "exact_reduction": True, "device": on},
        **{"updates": UPDATES, "checkpoint_updates": UPDATES, "keep_checkpoints": 1},
    }
    weights = set()
    with cluster(None):
        for workers in sorted({1, min(int(ray.cluster_resources()["GPU"]), 8) if device == "cuda" else 2}):
            text = stages.prepared(EMBEDDED.model_copy(update={"corpora": corpora}), PAIR)
            run = stages.TRAIN("train", text.dataset, recipe.model_copy(update={**settings, "workers": workers}))
            checkpoint = stages.AVERAGE("average", run, AveragingSettings(last=1))
            decoding = DecodingSettings(workers=2 * workers, device=on)
            hypotheses = stages.DECODE("decode", checkpoint, text.test_sets["test"], decoding)
            store = Store(tmp_path / str(workers))  # in a shared store, the second run would be cached
            runner.run([hypotheses], store)
            weights.add((run.published(store).folder / f"checkpoints/{UPDATES:08d}/model.safetensors").read_bytes())
            assert hypotheses.published(store).load().sentences == 100
    assert len(weights) == 1
