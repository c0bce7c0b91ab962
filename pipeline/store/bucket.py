"""Objects in S3, or in a service that speaks it, with the conditional writes that a store needs.

    bucket = Bucket("s3://name/prefix")
    bucket.create("locks/a.json", b"{}")     # False if it exists
    bucket.upload({"store/a/model.safetensors": Path("model.safetensors")})

Credentials, region and endpoint come from the environment (AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL, ...) or the
machine's role, by obstore's rules; never from the URI. Requests to a failing or slow service are retried for
`PATIENCE_S`, then raise a one-line BucketError.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import obstore
from obstore import exceptions
from obstore.store import ObjectStore, from_url

from pipeline.errors import BucketError

SCHEME = "s3"
PATIENCE_S = 120.0
"""How long to retry a failing service."""
REQUEST_S = 60
"""Longest silence of the service; a large object may take longer."""
PART_S = 600
"""The same for a part of an upload, since the service is silent until all of it has arrived."""
CHUNK_BYTES = 1 << 18
AT_ONCE = 4
"""Files copied concurrently."""
PARTS_AT_ONCE = 2
"""Parts of a large file uploaded concurrently, 5 MiB each, all in memory."""
STATED = (r"<Message>([^<]+)</Message>", r"status code: (\d+ [A-Za-z ]+)", r"(error sending request|timed out)")
"""Patterns of the service's own message within the client's long error text, most specific first."""


@dataclass(frozen=True)
class Object:
    """The content of an object when it was read."""

    data: bytes
    e_tag: str


@dataclass(frozen=True)
class Bucket:
    """The objects under a URI's path. Picklable; each process connects by itself."""

    uri: str

    def read(self, name: str) -> Object | None:
        """Returns an object, or None if it does not exist."""
        with self._in_a_line(f"read {name}"):
            try:
                answer = obstore.get(self._service, name)
                return Object(bytes(answer.bytes()), answer.meta["e_tag"] or "")
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        """Writes an object, replacing any existing one."""
        self._put(name, data, "overwrite")

    def create(self, name: str, data: bytes) -> bool:
        """Writes an object unless it exists; returns whether it did so."""
        return self._put(name, data, "create")

    def replace(self, name: str, data: bytes, e_tag: str) -> bool:
        """Replaces an object if its ETag still is `e_tag`; returns whether it did so."""
        return self._put(name, data, {"e_tag": e_tag})

    def sizes_bytes(self, folder: str) -> dict[str, int]:
        """Returns the sizes of all objects below a folder, by name relative to it."""
        with self._in_a_line(f"list {folder}"):
            objects = [item for chunk in obstore.list(self._service, prefix=folder) for item in chunk]
        return {item["path"].removeprefix(f"{folder}/"): item["size"] for item in objects}

    def folders(self, folder: str) -> list[str]:
        """Returns the sorted names of a folder's subfolders."""
        with self._in_a_line(f"list {folder}"):
            folders = obstore.list_with_delimiter(self._service, prefix=folder)["common_prefixes"]
        return sorted(path.rpartition("/")[2] for path in folders)

    def remove(self, names: Iterable[str]) -> None:
        """Removes objects, many per request; missing ones are ignored."""
        names = list(names)
        if names:
            with self._in_a_line(f"remove {names[0]}"):
                obstore.delete(self._service, names)

    def remove_folder(self, folder: str) -> None:
        """Removes all objects below a folder."""
        self.remove([f"{folder}/{name}" for name in self.sizes_bytes(folder)])

    def move_folder(self, folder: str, to: str) -> None:
        """Moves all objects below a folder to another."""
        names = {f"{folder}/{name}": f"{to}/{name}" for name in self.sizes_bytes(folder)}
        self._each("copy", names, lambda name: obstore.copy(self._service, name, names[name]))
        self.remove(names)

    def upload(self, files: Mapping[str, Path]) -> None:
        """Uploads files to objects, by name, concurrently.

        A large file is uploaded in parts and becomes visible with the last; after an error the client removes them.
        """

        def put(name: str) -> None:
            obstore.put(self._connected(PART_S), name, files[name], max_concurrency=PARTS_AT_ONCE)

        self._each("write", files, put)

    def download(self, files: Mapping[str, Path]) -> None:
        """Downloads objects, by name, to files, concurrently. Raises BucketError if one is missing.

        An object may take as long as its bytes come: after an interruption, the rest is asked for.
        """

        def fetch(name: str) -> None:
            answer = obstore.get(self._service, name)
            files[name].parent.mkdir(parents=True, exist_ok=True)
            with files[name].open("wb") as output:
                while True:
                    begun = output.tell()
                    try:
                        for chunk in answer.stream(min_chunk_size=CHUNK_BYTES):
                            output.write(chunk)
                        return
                    except exceptions.BaseError:
                        if output.tell() == begun:
                            raise
                    answer = obstore.get(self._service, name, options={"range": {"offset": output.tell()}})

        self._each("read", files, fetch)

    def check(self) -> None:
        """Raises BucketError if the bucket does not exist, denies access or does not answer."""
        self.folders("")

    def _each(self, action: str, names: Iterable[str], function: Callable[[str], object]) -> None:
        def call(name: str) -> None:
            with self._in_a_line(f"{action} {name}"):
                function(name)

        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(call, names))

    def _put(self, name: str, data: bytes, mode: Any) -> bool:
        with self._in_a_line(f"write {name}"):
            try:
                obstore.put(self._service, name, data, mode=mode)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                # A write may have succeeded without its answer arriving, and then been retried.
                stored = self.read(name)
                return stored is not None and stored.data == data
            except (FileNotFoundError, exceptions.NotFoundError):
                if mode in ("overwrite", "create"):
                    raise
                return False
        return True

    @property
    def _service(self) -> ObjectStore:
        return self._connected(REQUEST_S)

    def _connected(self, silence_s: int) -> ObjectStore:
        return _connected(self.uri, os.environ.get("AWS_ENDPOINT_URL", ""), PATIENCE_S, silence_s)

    @contextmanager
    def _in_a_line(self, action: str) -> Iterator[None]:
        """Converts the client's exceptions into a one-line BucketError."""
        try:
            yield
        # ValueError: no name of an object
        except (exceptions.BaseError, FileNotFoundError, TimeoutError, ValueError) as error:
            raise BucketError(
                f"{self.uri}: cannot {' '.join(action.split())} ({_reason(error)}); {_remedy(error)}"
            ) from None


@cache
def _connected(uri: str, endpoint: str, patience_s: float, silence_s: int) -> ObjectStore:
    # A private service in a trusted network often has no TLS; its URL then says http.
    insecure = endpoint.startswith("http://")
    try:
        return from_url(
            uri.replace("%", "%25").replace("?", "%3F").replace("#", "%23"),  # the name as the user typed it
            client_options={"allow_http": insecure, "timeout": "7d", "read_timeout": timedelta(seconds=silence_s)},
            retry_config={
                "max_retries": 1000,
                "retry_timeout": timedelta(seconds=patience_s),
                "backoff": {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=10), "base": 2},
            },
        )
    except (exceptions.BaseError, ValueError) as error:
        raise BucketError(f"--store {uri}: {_reason(error)}; give a URI such as s3://bucket/folder") from None


def _reason(error: Exception) -> str:
    """Returns the problem in a few words; the client's text has several lines and the whole request."""
    for pattern in STATED:
        if match := re.search(pattern, str(error)):
            return match[1].strip().rstrip(".")
    first, *_ = str(error).strip().split("\n")
    return first[:200]


def _remedy(error: Exception) -> str:
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
        return "check the credentials in the environment and their permissions"
    if isinstance(error, FileNotFoundError) or "does not exist" in str(error):
        return "check the names of the bucket and the folder"
    return "check the address and the network, and run the same command again"
