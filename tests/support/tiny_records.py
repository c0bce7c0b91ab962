from typing import Any

from model.config import TransformerConfig
from pipeline.records import Segment, SegmentDevices, TrainingRecord
from pipeline.settings import TrainingSettings

CPU = "a small CPU"
CONFIG = TransformerConfig(vocabulary_size=800, n_layers=2, d_model=128, d_ff=512)


def trained_on(name: str = CPU, count: int = 2, train_s: float = 100.0, **fields: Any) -> TrainingRecord:
    """A run in one segment on a number of devices of a name, with other `fields`."""
    devices = (SegmentDevices(name, count, None if name == CPU else 5e10),)
    segment = Segment(devices, 1, "float32", "2.13.0", False, train_s)
    return TRAINING.model_copy(update={"train_s": train_s, "segments": (segment,), **fields})


TRAINING = TrainingRecord(
    settings=TrainingSettings(model=CONFIG, updates=400, budget_tokens=2000),
    updates=400,
    epochs=3.5,
    train_s=100.0,
    loop_s=101.0,
    source_tokens=780_000,
    target_tokens=800_000,
    padding_fraction=0.04,
    counted_flop=3.1e12,
    parameters=1_400_000,
    checkpoints=(300, 400),
    segments=(Segment((SegmentDevices(CPU, 2, None),), 1, "float32", "2.13.0", False, 100.0),),
)
