"""Encodes text as token ids in memory-mapped Arrow IPC files, bucketed by length (§5.1).

Each `<split>/<number>.arrow` has columns `source` and `target`: lists of token ids ending in END_ID. Training shards
are sorted into buckets by the longer side, one record batch per bucket, so that the pairs of a unit lie close
together. The dev split keeps its order in one record batch.

Shape suffixes: B sentences, S source positions, T target positions, L either.
"""

import hashlib
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sentencepiece import SentencePieceProcessor

from model.config import BEGIN_ID, END_ID, PAD_ID, UNKNOWN_ID
from pipeline.artifacts import Corpus, EncodedDataset, EvaluationSet, Shard, Vocabulary
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.parts import written
from pipeline.settings import LONGEST_TOKENS, EncodingSettings
from pipeline.store.folders import temporary_folder
from pipeline.text.lines import read_pairs
from pipeline.text.segmentation import segmenter
from pipeline.text.vocabulary import load

if TYPE_CHECKING:  # torch is slow to import, and only `EncodedSplit.batch` needs it
    from torch import Tensor

SIDES = ("source", "target")
MAX_SHARD_TOKENS = np.iinfo(np.int32).max
"""Maximum number of token ids on one side of a shard: Arrow's offsets have 32 bits."""
BLOCK_PAIRS = 4096
"""Pairs held as Python strings at a time."""


def encode(
    context: Context, corpus: Corpus, dev: EvaluationSet, vocabulary: Vocabulary, settings: EncodingSettings
) -> EncodedDataset:
    """Encodes the splits train and dev, with one task per shard, and adds a copy of `joint.model`.

    dataset.json is {"vocabulary_size", "languages", "splits": {name: [{"pairs", "source_tokens", "target_tokens",
    "unknown", "sha256"}, ...]}, "left_out", "collections": {name: these counts and "left_out"}}. Token counts include
    END_ID, `sha256` is the hash of the token ids, `left_out` counts training pairs longer than `max_tokens`, and
    collections refer to training shards.
    Raises UserError if no training pair is short enough.
    """
    dataset = EncodedDataset(context.folder)
    shards_of = {"train": corpus.shards, "dev": [dev.shard]}
    calls = []
    for split, shards in shards_of.items():
        limit = settings.max_tokens if split == "train" else None
        for i, shard in enumerate(shards):
            calls.append(([f"{split}/{i:05d}.arrow"], (shard, vocabulary.path, limit)))
    splits: dict[str, list[dict[str, Any]]] = {split: [] for split in shards_of}
    collections: dict[str, Counter[str]] = {shard.collection: Counter() for shard in corpus.shards}
    done, total = 0, sum(shard.pairs for _, (shard, *_) in calls)
    for ((name,), (shard, *_)), counts in zip(calls, written(context, encode_shard, calls), strict=True):
        split, sha256 = name.partition("/")[0], counts.pop("sha256")
        if split == "train":
            collections[shard.collection].update(counts)
        del counts["left_out"]
        splits[split].append({**counts, "sha256": sha256})
        done += shard.pairs
        context.progress(done, total, "pairs")
    if not any(counts["pairs"] for counts in splits["train"]):
        raise UserError(f"no training pair has at most {settings.max_tokens} tokens per side; raise max_tokens")
    shutil.copyfile(vocabulary.path, dataset.folder / "joint.model")
    content = {
        "vocabulary_size": len(load(vocabulary.path)),
        "languages": corpus.languages,
        "splits": splits,
        "left_out": sum(counts["left_out"] for counts in collections.values()),
        "collections": collections,
    }
    dataset.write_json("dataset.json", content)
    return dataset


@contextmanager
def encoded_set(context: Context, text: EvaluationSet, model: Path) -> Iterator["EncodedSplit"]:
    """Yields the token ids of an evaluation set, encoded as in a dataset with the same vocabulary.

    Raises UserError if no pair is short enough to be computed.
    """
    with temporary_folder(context.folder) as folder:
        dataset, name = EncodedDataset(folder), text.load().name
        (dataset.folder / name).mkdir()
        counts = encode_shard([dataset.folder / name / "00000.arrow"], text.shard, model, None)
        dataset.write_json("dataset.json", {"splits": {name: [counts]}})
        split = EncodedSplit.open(dataset, name)
        if not len(split.computed_rows):
            raise UserError(f"{text.source} has no pair of at most {LONGEST_TOKENS} tokens; add shorter text")
        yield split


def encode_shard(paths: Sequence[Path], shard: Shard, model: Path, max_tokens: int | None) -> dict[str, Any]:
    """Encodes one shard to the only path, by `write_shard`; with `max_tokens` None, every pair is kept, in order."""
    segment = segmenter(model)
    blocks: list[list[tuple[NDArray[Any], NDArray[np.int64]]]] = []
    pairs = read_pairs(shard.source, shard.target)
    while block := list(islice(pairs, BLOCK_PAIRS)):
        blocks.append([segment(lines) for lines in zip(*block, strict=True)])
    source, target = (id_lists(*map(np.concatenate, zip(*side, strict=True))) for side in zip(*blocks, strict=True))
    return write_shard(paths[0], source, target, max_tokens)


def id_lists(ids: NDArray[Any], lengths: NDArray[np.integer]) -> pa.ListArray:
    """Returns sentences of these lengths as an Arrow array. Raises UserError for too many ids."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    if offsets[-1] > MAX_SHARD_TOKENS:
        raise UserError(
            f"a shard has {offsets[-1]} token ids, and the limit is {MAX_SHARD_TOKENS}; lower cleaning.shard_pairs"
        )
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(ids))


def write_shard(path: Path, source: pa.ListArray, target: pa.ListArray, max_tokens: int | None) -> dict[str, Any]:
    """Writes pairs of token ids, bucketed up to `max_tokens`; if that is None, all in order.

    Each non-empty bucket is a record batch. Returns the shard's counts and hash for dataset.json, and `left_out`.
    """
    longer = np.maximum(*(np.diff(side.offsets.to_numpy()) for side in (source, target)))
    bounds = bucket_bounds(max_tokens) if max_tokens else [int(longer.max())]
    bucket = np.searchsorted(bounds, longer)  # beyond the last bound: in no bucket
    rows = [np.flatnonzero(bucket == i) for i in range(len(bounds))]
    kept = [side.take(pa.array(np.concatenate(rows))) for side in (source, target)]
    edges = np.cumsum([0, *map(len, rows)]).tolist()
    schema = pa.schema([pa.field(name, side.type, nullable=False) for name, side in zip(SIDES, kept, strict=True)])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for begin, end in pairwise(edges):
            if begin < end:  # for an empty slice, Arrow would write the offsets of all rows
                batch = [side.slice(begin, end - begin) for side in kept]
                writer.write_batch(pa.record_batch(batch, schema=schema))
    ids = [side.flatten().to_numpy() for side in kept]
    digest = hashlib.sha256()
    for side, values in zip(kept, ids, strict=True):
        digest.update(np.diff(side.offsets.to_numpy()).data)
        digest.update(values.data)
    return {
        "pairs": edges[-1],
        "source_tokens": len(ids[0]),
        "target_tokens": len(ids[1]),
        "unknown": sum(int((side == UNKNOWN_ID).sum()) for side in ids),
        "left_out": len(longer) - edges[-1],
        "sha256": digest.hexdigest(),
    }


def bucket_bounds(max_tokens: int) -> list[int]:
    """Returns the maximum length of each bucket: 8, then 25% more each time, in steps of 4, up to `max_tokens`."""
    bounds = [8]
    while bounds[-1] < max_tokens:
        bounds.append(bounds[-1] + max(4, bounds[-1] // 16 * 4))
    return [*(bound for bound in bounds if bound < max_tokens), max_tokens]


def decode_ids(processor: SentencePieceProcessor, sentences: Sequence[Sequence[int]]) -> list[str]:
    """Decodes each sentence up to its first END_ID, skipping padding and BEGIN_ID.

    Every sequence of ids yields one line of UTF-8: invalid bytes become U+FFFD, a line feed becomes a space.
    """
    special = {PAD_ID, BEGIN_ID, END_ID}
    cut = [ids[: ids.index(END_ID)] if END_ID in ids else ids for ids in map(list, sentences)]
    text: list[str] = processor.decode([[i for i in ids if i not in special] for ids in cut], num_threads=1)
    return [line.replace("\n", " ") for line in text]


@dataclass(frozen=True, eq=False)
class EncodedSplit:
    """One split of a dataset, its shards in order. Pickled as a path, so each worker maps the files itself."""

    dataset: EncodedDataset
    split: str
    _chunk_rows: NDArray[np.int64]
    """First row of each record batch, then the number of rows."""
    _sides: "tuple[_Mapped, _Mapped]"

    @classmethod
    def open(cls, dataset: EncodedDataset, split: str) -> "EncodedSplit":
        """Maps a split's files. Raises UserError if there is no such split or a file is missing or damaged."""
        splits = dataset.read_json("dataset.json")["splits"]
        if split not in splits:
            raise UserError(f"{dataset.folder} has no split {split!r}; it has {', '.join(splits)}")
        batches = [
            batch
            for i, counts in enumerate(splits[split])
            for batch in _open(dataset.folder / split / f"{i:05d}.arrow", counts["pairs"])
        ]
        source, target = (_Mapped.of([batch.column(name) for batch in batches]) for name in SIDES)
        return cls(dataset, split, np.cumsum([0, *(batch.num_rows for batch in batches)]), (source, target))

    def __len__(self) -> int:
        return int(self._chunk_rows[-1])

    @property
    def computed_rows(self) -> NDArray[np.int64]:
        """The rows that a model computes: those with at most LONGEST_TOKENS on either side."""
        return np.flatnonzero(np.maximum(self.source_lengths, self.target_lengths) <= LONGEST_TOKENS)

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """Tokens per source sentence including END_ID, in row order; built at each call."""
        return self._sides[0].lengths()

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        """Tokens per target sentence including END_ID, in row order; built at each call."""
        return self._sides[1].lengths()

    @property
    def longest_tokens(self) -> int:
        """Length of the longest sentence of either side in tokens; 0 if there is none."""
        return max((int(np.diff(offsets).max()) for side in self._sides for offsets in side.offsets), default=0)

    @property
    def target_tokens(self) -> int:
        """Number of target tokens including END_ID."""
        return sum(int(offsets[-1] - offsets[0]) for offsets in self._sides[1].offsets)

    def sha256(self) -> str:
        """Returns a hash of all rows' token ids, without reading them."""
        shards = self.dataset.read_json("dataset.json")["splits"][self.split]
        return hashlib.sha256("".join(shard["sha256"] for shard in shards).encode()).hexdigest()

    def lengths_of(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the source and target lengths of rows, including END_ID. Raises IndexError like `batch`."""
        chunks, places = self._located(rows)
        source, target = (np.subtract(*side.edges(chunks, places)[::-1]) for side in self._sides)
        return source, target

    def batch(self, rows: NDArray[np.integer]) -> "tuple[Tensor, Tensor]":
        """Returns (source_BS, target_BT) of rows: int64, END_ID last, padded with PAD_ID to the longest.

        Raises IndexError if a row is outside the split.
        """
        chunks, places = self._located(rows)
        source, target = self._sides
        return source.pad(chunks, places), target.pad(chunks, places)

    def _located(self, rows: NDArray[np.integer]) -> tuple[list[int], list[int]]:
        """Returns each row's record batch, and its index there."""
        rows = np.asarray(rows, np.int64)
        if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"rows from {rows.min()} to {rows.max()} of a split with {len(self)}")
        chunks = np.searchsorted(self._chunk_rows, rows, side="right") - 1
        return chunks.tolist(), (rows - self._chunk_rows[chunks]).tolist()


@dataclass(frozen=True, eq=False)
class _Mapped:
    """One side of a split, memory-mapped: sentence i of a record batch is `values[offsets[i]:offsets[i + 1]]`.

    Processes of one machine share the pages without copies; WMT14's 36 M pairs have 290 MB of offsets.
    """

    values: list[NDArray[Any]]
    """Ids by record batch."""
    offsets: list[NDArray[np.int32]]
    """Offsets by record batch."""

    @classmethod
    def of(cls, columns: Sequence[pa.ListArray]) -> "_Mapped":
        return cls([column.values.to_numpy() for column in columns], [column.offsets.to_numpy() for column in columns])

    def lengths(self) -> NDArray[np.int32]:
        """Returns the length of every sentence."""
        return np.concatenate([np.diff(offsets) for offsets in self.offsets] or [np.empty(0, np.int32)])

    def edges(self, chunks: list[int], places: list[int]) -> NDArray[np.int64]:
        """Returns each sentence's begin (row 0) and end (row 1) in the values of its record batch."""
        within = [self.offsets[chunk] for chunk in chunks]
        begins = [offsets.item(place) for offsets, place in zip(within, places, strict=True)]
        ends = [offsets.item(place + 1) for offsets, place in zip(within, places, strict=True)]
        return np.array([begins, ends], np.int64)

    def pad(self, chunks: list[int], places: list[int]) -> "Tensor":
        """Returns the sentences as one padded (B, longest) tensor."""
        import torch

        if not chunks:
            return torch.empty(0, 0, dtype=torch.long)
        begins_B, ends_B = self.edges(chunks, places)
        lengths_B = ends_B - begins_B
        ids_BL = np.full((len(chunks), lengths_B.max()), PAD_ID, dtype=np.int64)
        is_real_BL = np.arange(ids_BL.shape[1]) < lengths_B[:, None]
        sentences = zip(chunks, begins_B.tolist(), ends_B.tolist(), strict=True)
        ids_BL[is_real_BL] = np.concatenate([self.values[chunk][begin:end] for chunk, begin, end in sentences])
        return torch.from_numpy(ids_BL)


def _open(path: Path, pairs: int) -> list[pa.RecordBatch]:
    """Maps a file's non-empty record batches without copying."""
    try:
        with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
            batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
    except FileNotFoundError:
        raise UserError(f"{path} is missing; remove the dataset's folder and encode again") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(f"{path} is damaged ({error}); remove the dataset's folder and encode again") from None
    if sum(batch.num_rows for batch in batches) != pairs:
        raise UserError(f"{path} does not hold {pairs} pairs; remove the dataset's folder and encode again")
    return [batch for batch in batches if batch.num_rows]
