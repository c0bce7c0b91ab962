"""Trains JoeyNMT on the pairs and pieces that `aiayn prepare` has written, with base's settings (docs/benchmarks.md).

aiayn prepare --profile multi30k --pairs en-de --out prepared
joey/bin/python examples/peer_joeynmt.py prepared peer --threads 2         # --updates 20: a first try

Runs in an environment with JoeyNMT 2.3, without this project. Writes `peer/result.json` (dev NLL in nats per token
without smoothing, training seconds, peak memory), translations of the test sets, the configuration and checkpoints.
"""

import argparse
import json
import math
import resource
import time
from pathlib import Path
from typing import Any


def configuration(prepared: Path, out: Path, updates: int | None) -> tuple[dict[str, Any], list[int]]:
    """Writes the text and the pieces for JoeyNMT. Returns its configuration, and the updates to average."""
    profile = json.loads((prepared / "profile.json").read_text())
    dataset = json.loads((prepared / "dataset" / "dataset.json").read_text())
    recipe, search = profile["recipes"]["base"], profile["decoding"]
    ours, sizes, optimizer = recipe["training"], recipe["training"]["model"], recipe["training"]["optimizer"]
    for language in dataset["languages"]:
        shards = sorted((prepared / "corpus").glob(f"[0-9]*.{language}"))
        (out / f"train.{language}").write_bytes(b"".join(shard.read_bytes() for shard in shards))
    pieces = prepared.joinpath("vocabulary", "joint.vocab").read_text(encoding="utf-8").splitlines()
    (out / "pieces.txt").write_text("".join(f"{line.split()[0]}\n" for line in pieces), encoding="utf-8")
    model_file = str(prepared / "vocabulary" / "joint.model")
    side = {"level": "bpe", "tokenizer_type": "sentencepiece", "tokenizer_cfg": {"model_file": model_file}}
    side["voc_file"] = str(out / "pieces.txt")
    data = {name: {"lang": of, **side} for name, of in zip(("src", "trg"), dataset["languages"], strict=True)}
    data |= {"train": str(out / "train"), "dev": str(prepared / "evaluation-dev" / "dev")}
    stack = {"type": "transformer", "num_layers": sizes["n_layers"], "num_heads": sizes["n_heads"]}
    stack |= {"hidden_size": sizes["d_model"], "ff_size": sizes["d_ff"], "dropout": sizes["dropout"]}
    stack |= {"layer_norm": "post", "embeddings": {"embedding_dim": sizes["d_model"], "scale": True}}
    model = {"encoder": stack, "decoder": stack, "tied_embeddings": True, "tied_softmax": True}
    model |= {"embed_initializer": "normal", "embed_init_weight": sizes["d_model"] ** -0.5}
    splits = dataset["splits"]["train"]  # a batch has as many pairs as an update of ours on average
    pairs, *tokens = (sum(split[of] for split in splits) for of in ("pairs", "source_tokens", "target_tokens"))
    batch_pairs = round(ours["budget_tokens"] * pairs / max(tokens))
    every, last = ours["checkpoint_updates"], updates or ours["updates"]
    training = {"optimizer": "adam", "adam_betas": [optimizer["beta_1"], optimizer["beta_2"]], "scheduling": "noam"}
    training |= {"learning_rate": 0.0, "learning_rate_min": 0.0}  # of the first update, after which the schedule begins
    training |= {"learning_rate_factor": optimizer["learning_rate_scale"]}
    training |= {"learning_rate_warmup": optimizer["warmup_steps"], "label_smoothing": optimizer["label_smoothing"]}
    training |= {"normalization": "tokens", "batch_type": "sentence", "batch_size": batch_pairs, "epochs": 10**6}
    training |= {"updates": last, "validation_freq": every, "logging_freq": math.gcd(every, 50)}
    testing = {"beam_size": search["beam_size"], "beam_alpha": search["length_penalty"], "max_output_length": 100}
    config = {"name": "peer", "model_dir": str(out / "model"), "use_cuda": False, "data": data, "model": model}
    kept = [update for update in range(1, last + 1) if update % every == 0 or update == last]
    return config | {"training": training, "testing": testing}, kept[-recipe["averaging"]["last"] :]


def main() -> None:
    """Trains, averages, measures and translates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("out", type=Path)
    for option, default in (("--seed", 1), ("--updates", None), ("--threads", 1)):
        parser.add_argument(option, type=int, default=default)
    given = parser.parse_args()
    prepared, out = given.prepared.absolute(), given.out.absolute()
    (out / "model").mkdir(parents=True, exist_ok=True)
    described, averaged = configuration(prepared, out, given.updates)
    (out / "config.yaml").write_text(json.dumps(described | {"random_seed": given.seed}, indent=2))  # JSON is YAML

    import torch
    from joeynmt.config import load_config, parse_global_args
    from joeynmt.data import load_data
    from joeynmt.prediction import predict, prepare
    from joeynmt.training import TrainManager

    class Manager(TrainManager):
        """Keeps the weights to average instead of translating the dev set, so seconds are of training."""

        def _validate(self, valid_data: Any) -> None:
            if self.stats.steps in averaged:
                states[self.stats.steps] = {name: weight.clone() for name, weight in self.model.state_dict().items()}

    states: dict[int, dict[str, Any]] = {}  # JoeyNMT deletes the older of two checkpoints without a score
    torch.set_num_threads(given.threads)
    config = load_config(out / "config.yaml")
    args = parse_global_args(config, rank=0, mode="train")
    torch.manual_seed(args.seed)  # JoeyNMT seeds after it has drawn the weights
    model, train, dev, _ = prepare(args, rank=0, mode="train")
    manager = Manager(0, model, args.model_dir, args.device, 0, 0, args.autocast, args.seed, args.train, args.test)
    started_s = time.perf_counter()
    manager.train_and_validate(train, dev)
    result: dict[str, Any] = {"updates": manager.stats.steps, "train_s": time.perf_counter() - started_s}
    result["peak_memory_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    result["parameters"] = sum(weight.numel() for weight in model.parameters())
    result["target_tokens"] = manager.stats.total_tokens
    last = states[manager.stats.steps] = model.state_dict()
    model.load_state_dict({name: sum(state[name] for state in states.values()) / len(states) for name in last})
    model.loss_function = "crossentropy", 0.0  # no smoothing
    how = {"model": model, "device": args.device, "n_gpu": 0, "normalization": "tokens", "autocast": args.autocast}
    search = args.test._replace(batch_size=64)
    teacher_forced = search._replace(return_prob="ref", return_attention=True, beam_size=1)
    scores, *_ = predict(data=dev, compute_loss=True, args=teacher_forced, **how)
    result |= {"averaged": sorted(states), "dev_nll": scores["loss"], "dev_accuracy": scores["acc"]}
    for folder in sorted(prepared.glob("evaluation-test*")):
        name = folder.name.removeprefix("evaluation-")
        *_, test = load_data(config["data"] | {"test": str(folder / name)}, datasets=["test"])
        started_s = time.perf_counter()
        _, _, translations, *_ = predict(data=test, args=search, **how)
        result[f"decode_s.{name}"] = time.perf_counter() - started_s
        (out / name).write_text("\n".join(translations) + "\n", encoding="utf-8")
    (out / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
