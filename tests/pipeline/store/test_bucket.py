import os
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import BucketError
from pipeline.store import bucket as bucket_module
from pipeline.store.bucket import Bucket
from tests.support.s3_server import CREDENTIALS, FaultyProxy, S3Server, always, first, never

FOREVER_S = 2.0
"""Longest failure of a server in these tests."""


@pytest.fixture
def proxy(at_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    """A proxy between this process and the server. Clients stop retrying after `FOREVER_S`."""
    monkeypatch.setattr(bucket_module, "PATIENCE_S", FOREVER_S)
    with FaultyProxy(at_s3) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        yield proxy


def test_a_folder_of_a_bucket_may_have_any_name(at_s3: S3Server) -> None:
    root = at_s3.bucket()
    names = ("a", "a?b", "a#b", "a%20b", "a b", "ü's")
    for name in names:
        assert Bucket(f"{root}/{name}").create("one", name.encode())
    assert sorted(Bucket(root).sizes_bytes("")) == sorted(f"{name}/one" for name in names)


def test_what_is_wrong_is_reported_in_a_line_without_secrets(at_s3: S3Server, tmp_path: Path) -> None:
    at_s3.bucket()
    with pytest.raises(BucketError, match=r"^s3://no-such-bucket: .*specified bucket does not exist.*check the name"):
        Bucket("s3://no-such-bucket").check()
    bucket = Bucket(at_s3.bucket())
    with pytest.raises(BucketError) as missing:
        bucket.download({"none": tmp_path / "none"})
    assert "\n" not in str(missing.value)
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in str(missing.value)
    with pytest.raises(BucketError, match="give a URI such as"):
        Bucket("nonsense").check()


def test_many_objects_are_removed_with_one_request(proxy: FaultyProxy, at_s3: S3Server) -> None:
    """S3 accepts a thousand names per request. Missing objects count as removed."""
    bucket = Bucket(at_s3.bucket())
    names = [f"folder/{number}" for number in range(40)]
    for name in names:
        bucket.write(name, b"1")
    before = proxy.n_passed
    bucket.remove([*names[:30], "folder/none"])
    assert proxy.n_passed == before + 1
    assert sorted(bucket.sizes_bytes("folder")) == sorted(name.removeprefix("folder/") for name in names[30:])
    bucket.remove([])
    assert proxy.n_passed == before + 2


def test_a_server_that_fails_for_a_while_is_asked_again(proxy: FaultyProxy, at_s3: S3Server) -> None:
    bucket = Bucket(at_s3.bucket())
    bucket.write("a", b"1")
    proxy.refuses = first(2)
    assert bucket.read("a")
    assert proxy.n_failed == 2
    proxy.refuses = always
    with pytest.raises(BucketError, match=r"cannot write a .*run the same command again") as failed:
        bucket.write("a", b"2")
    assert "\n" not in str(failed.value)
    proxy.refuses = never
    assert bucket.read("a")


class Line(FaultyProxy):
    """A line of 1 MB/s, which is cut every `cut_bytes`."""

    cut_bytes = 1 << 62

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        up, sent = environ["wsgi.input"], 0
        time.sleep(int(environ.get("CONTENT_LENGTH") or 0) / 1e6)
        for part in super().__call__(environ, start_response):
            for at in range(0, len(part), 500_000):
                time.sleep(0.5 * (environ["REQUEST_METHOD"] == "GET"))
                sent += 500_000
                if sent > self.cut_bytes:
                    up.close()
                    raise ConnectionAbortedError
                yield part[at : at + 500_000]


@pytest.mark.parametrize("cut_bytes", [1 << 62, 1_200_000])
def test_an_object_takes_long(at_s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cut_bytes: int) -> None:
    """As long as bytes come: 2.5 s and more each way here, where the service may be silent or fail for 2 s."""
    monkeypatch.setattr(bucket_module, "REQUEST_S", 2)
    monkeypatch.setattr(bucket_module, "PATIENCE_S", 2.0)
    (tmp_path / "large").write_bytes(content := os.urandom(2_500_000))
    with Line(at_s3) as line:
        line.cut_bytes = cut_bytes
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.address)
        bucket = Bucket(at_s3.bucket())
        bucket.upload({"large": tmp_path / "large"})
        bucket.download({"large": tmp_path / "copy"})
    assert (tmp_path / "copy").read_bytes() == content


def test_a_failed_upload_leaves_nothing(proxy: FaultyProxy, at_s3: S3Server, tmp_path: Path) -> None:
    """Its parts would be invisible, and billed."""
    (tmp_path / "large").write_bytes(bytes(25 << 20))
    asked = list[str]()

    def refuses(request: str) -> bool:
        asked.append(request)
        return "partNumber=3" in request

    proxy.refuses, bucket = refuses, Bucket(at_s3.bucket())
    with pytest.raises(BucketError, match=r"cannot write large .*run the same command again"):
        bucket.upload({"large": tmp_path / "large"})
    assert re.fullmatch(r"DELETE /.*/large\?uploadId=.*", asked[-1])
    listed = urllib.request.urlopen(f"{at_s3.address}/{bucket.uri.removeprefix('s3://')}?uploads").read()
    assert b"<Upload>" not in listed
    assert bucket.sizes_bytes("") == {}


def test_a_lost_answer_is_not_taken_for_a_refusal(proxy: FaultyProxy, at_s3: S3Server) -> None:
    """A write whose answer was lost counts as ours, even if its retry finds the object present."""
    bucket = Bucket(at_s3.bucket())
    proxy.loses = first(1)
    assert bucket.create("a", b"ours")
    assert not bucket.create("a", b"theirs")
    written = bucket.read("a")
    assert written
    proxy.loses = first(1)
    assert bucket.replace("a", b"ours again", written.e_tag)
