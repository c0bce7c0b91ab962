"""What `run.json` of a small training holds, made up."""

from model.config import TransformerConfig
from pipeline.settings import TrainingSettings
from pipeline.store.figures import TrainingFigures

CONFIG = TransformerConfig(vocabulary_size=800, n_layers=2, d_model=128, d_ff=512)

TRAINING = TrainingFigures(
    settings=TrainingSettings(model=CONFIG, updates=400, budget_tokens=2000),
    updates=400,
    epochs=3.5,
    train_s=100.0,
    source_tokens=780_000,
    target_tokens=800_000,
    padding_fraction=0.04,
    workers=2,
    threads=1,
    devices=2,
    device_name="a small CPU",
    dtype="float32",
    matmul_flop_s=5e10,
    counted_flop=3.1e12,
    parameters=1_400_000,
    checkpoints=(300, 400),
)
