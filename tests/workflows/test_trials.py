from pipeline.settings import DecodingSettings
from workflows import stages
from workflows.profiles.loading import load_profile
from workflows.profiles.translation import EMBEDDED
from workflows.tables.table3_rows import rows
from workflows.trials import RowTrial, trials_of

TEXT = stages.prepared(EMBEDDED, "en-de")


def trials(seeds: int, base_seeds: int, first: int = 1) -> list[RowTrial]:
    training = EMBEDDED.grid.training.model_copy(update={"seed": first})
    grid = EMBEDDED.grid.model_copy(update={"training": training})
    return trials_of(TEXT, rows(grid, "base,A1"), seeds, EMBEDDED.decoding, base_seeds=base_seeds)


def test_more_seeds_leave_what_was_trained_with_one() -> None:
    """The first seed's run is that of a single-seed table, so it is cached. Base gets the greater number of seeds."""
    single, several = (
        {trial.name: trial.evaluation.training.fingerprint for trial in trials(1, base_seeds)} for base_seeds in (1, 3)
    )
    assert several["base seed 1"] == single["base"]
    assert several["A1"] == single["A1"]
    assert [*several] == ["base seed 1", "base seed 2", "base seed 3", "A1"]
    assert len(set(several.values())) == 4
    assert [trial.name for trial in trials(2, 1, first=5)] == ["base seed 5", "base seed 6", "A1 seed 5", "A1 seed 6"]


def test_a_trial_decodes_with_the_fewest_workers_of_an_elastic_run() -> None:
    profile = load_profile("embedded", overrides=["grid.training.workers=2:3"]).for_pair("en-de")
    (trial,) = trials_of(TEXT, rows(profile.grid, "A1"), 1, profile.decoding)
    hypotheses = trial.evaluation.hypotheses
    searches = [value for value in hypotheses.arguments if isinstance(value, DecodingSettings)]
    assert [search.workers for search in searches] == [2]
