"""Made-up figures of a small corpus with two collections."""

from pipeline.text.corpus_statistics import Collection, CorpusStatistics, Lengths, Plan, Split, VocabularySample

REASONS = ("blank", "too_long", "ratio", "too_many_tokens")


def collection(name: str, kept: int, *dropped: int) -> Collection:
    """Makes a collection with the given numbers of pairs dropped for each of REASONS."""
    return Collection(name, kept + sum(dropped), kept, dict(zip(REASONS, dropped, strict=True)), 0.0002)


def lengths(language: str, *sentences: int) -> Lengths:
    """Makes the lengths of a side with the given numbers of sentences of 1, 2, ... tokens."""
    mean = sum(n * count for n, count in enumerate(sentences, start=1)) / sum(sentences)
    return Lengths(language, mean, {"0.5": 2, "0.99": len(sentences), "0.999": len(sentences)}, [0, *sentences])


STATISTICS = CorpusStatistics(
    data="two collections",
    collections=[collection("europarl-v7", 1_900, 60, 0, 30, 10), collection("<b>web & more</b>", 1_000, 0, 0, 0, 0)],
    splits=[Split("train", 2_900, 2.5, 3.5, 0.0002, 0.12, 0.003), Split("dev", 20, 2.4, 3.4, 0.0, 0.11, 0.0)],
    lengths=(lengths("en", 100, 1_500, 1_000, 300), lengths("de", 50, 900, 1_000, 700, 250)),
    sample=VocabularySample(
        size=500, sampled_pairs=1_000, train_pairs=2_910, words=4_200, characters=80, first_characters=30, bytes=256
    ),
    plan=Plan(budget_tokens=400, micro_batches=2, every=1, updates=26, padding_fraction=0.0421, problem=""),
)
