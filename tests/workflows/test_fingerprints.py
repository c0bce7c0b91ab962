"""The fingerprints of the profiles' steps are pinned: changing one orphans finished runs, so it must be deliberate.

A fingerprint may change only with its stage's version, its settings or its inputs. Where that is meant, write the new
ones with `python tests/workflows/test_fingerprints.py > tests/workflows/fingerprints.json` and say why in the commit.
"""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.parsing.treebank import TreebankSettings
from pipeline.settings import CleaningSettings
from workflows import stages
from workflows.engine.dag import in_order
from workflows.profiles.translation import PROFILES, translation_profile
from workflows.reproduce_table2 import TABULATE, cells_of
from workflows.reproduce_table3 import trials_of
from workflows.tables.table3_rows import rows

PINNED = Path(__file__).with_name("fingerprints.json")


def fingerprints() -> dict[str, dict[str, str]]:
    """By profile and label: all steps of Table 2 except the table, and the training runs of Table 3.

    Steps of a treebank's texts come last.
    """
    found: dict[str, dict[str, str]] = {}
    for profile in map(translation_profile, PROFILES):
        cells = cells_of(profile, list(profile.corpora), list(profile.recipes))
        table = TABULATE("table 2", cells, [stages.prepared(profile, pair).report for pair in profile.corpora])
        pair = next(iter(profile.corpora))
        chosen = profile.for_pair(pair).for_grid()
        trials = trials_of(stages.prepared(chosen, pair), rows(chosen.grid), 1, chosen.decoding)
        trainings = [trial.training for trial in trials.values()]
        found[profile.name] = {
            **{step.label: step.name for step in in_order(table.inputs)},
            **{f"{training.label} (Table 3)": training.fingerprint for training in trainings},
        }
    with TemporaryDirectory() as folder:
        for section in ("21", "22", "23"):
            (Path(folder) / section).mkdir()
            (Path(folder) / section / "wsj.mrg").write_text(f"(S (NP (NN s{section})) (VP (VBZ is)))\n")
        corpus, sets = stages.text_of("treebank", TreebankSettings(treebank=Path(folder)), CleaningSettings())
        found["treebank"] = {corpus.label: corpus.name} | {step.label: step.name for step in sets.values()}
    return found


def test_the_profiles_steps_keep_their_fingerprints() -> None:
    """Moving or renaming code changes no fingerprint, so stores of earlier versions stay cached."""
    assert fingerprints() == json.loads(PINNED.read_text(encoding="utf-8"))


def test_no_two_stages_share_a_name() -> None:
    sources = [path.read_text(encoding="utf-8") for path in Path(stages.__file__).parent.rglob("*.py")]
    named = re.compile(r'^[A-Z0-9_]+ = Stage\(\s*"([\w.]+)"', re.MULTILINE)
    names = [name for source in sources for name in named.findall(source)]
    assert len(names) == len(set(names)) > 20


if __name__ == "__main__":
    print(json.dumps(fingerprints(), indent=1, ensure_ascii=False))
