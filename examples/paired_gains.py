"""What a change of averaging or search is worth: each file's metrics minus the first file's, paired by seed (§6.1).

python examples/paired_gains.py averaging-1-1.csv averaging-5-1.csv averaging-10-1.csv       # of `aiayn results`

Prints a Markdown table: the mean difference of the models that both files have, its 95% interval by Student's t, and n.
"""

import csv
from pathlib import Path
from statistics import fmean, stdev

import typer
from scipy.stats import t

METRICS = "final_dev_nll", "paper_bleu.", "sacrebleu."


def read(path: Path) -> dict[tuple[str, ...], dict[str, str]]:
    """Returns a file's rows by pair, model and seed."""
    with path.open(newline="", encoding="utf-8") as file:
        return {(row["pair"], row["model"], row["seed"]): row for row in csv.DictReader(file)}


def main(first: Path, others: list[Path]) -> None:
    """Prints the gains of the others."""
    base = read(first)
    print(f"| minus {first.stem} | model | metric | mean | 95% interval | n |\n|---|---|---|---|---|---|")
    for path in others:
        rows = read(path)
        for pair, model in dict.fromkeys(key[:2] for key in rows):
            keys = [key for key in rows if key[:2] == (pair, model) and key in base]
            for metric in (name for key in keys[:1] for name in rows[key] if name.startswith(METRICS)):
                if not all(each[key].get(metric) for key in keys for each in (rows, base)):
                    continue  # Moses BLEU, say, of a language without words
                gains = [float(rows[key][metric]) - float(base[key][metric]) for key in keys]
                mean, n = fmean(gains), len(gains)
                half = float(t.ppf(0.975, n - 1)) * stdev(gains) / n**0.5 if n > 1 else float("nan")
                interval = f"[{mean - half:+.3f}, {mean + half:+.3f}]"
                print(f"| {path.stem} | {pair} {model} | {metric} | {mean:+.3f} | {interval} | {n} |")


if __name__ == "__main__":
    typer.run(main)
