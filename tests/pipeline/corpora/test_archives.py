"""pipeline.corpora.archives: extraction from an archive on disk, and rejected archives."""

import hashlib
import tarfile
import time
from pathlib import Path
from shutil import disk_usage
from typing import Any

import pytest

from pipeline.context import Context
from pipeline.corpora import archives
from pipeline.corpora.archives import Archive, Origin, extract, report_downloads
from pipeline.errors import LockLostError, UserError
from pipeline.store.build import Build
from pipeline.text.amount import Amount
from tests.support.official_archives import checksum, text, write_archive

SIDES = {"in/a.en": b"one\n", "in/a.de": b"eins\n"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def taken(
    data: Path, name: str = "x.tgz", members: tuple[str, str] = ("in/a.en", "in/a.de"), known: bool = True
) -> tuple[Path, Path, dict[str, Any]]:
    expected = checksum(data / name) if known else None
    archive = Archive(path=name, source=members[0], target=members[1], checksum=expected)
    (data.parent / "out").mkdir(exist_ok=True)
    return extract(archive, Origin((), data, data.parent / "downloads"), data.parent / "out")


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("prefix", ["", "./"])
def test_both_sides_are_extracted_whatever_their_order(data: Path, order: int, prefix: str) -> None:
    members = {"in/a.cs": b"jeden\n", **dict([*SIDES.items()][::order]), "readme": b"x"}
    write_archive(data / "x.tgz", {prefix + name: content for name, content in members.items()})
    source, target, report = taken(data)
    assert (source.read_bytes(), target.read_bytes()) == (b"one\n", b"eins\n")
    assert sorted(path.name for path in source.parent.iterdir()) == ["a.de", "a.en"]
    content = (data / "x.tgz").read_bytes()
    assert report == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        # Even an unrequested member is an error: such an archive is not what it claims to be.
        ("../outside", "", "is unsafe .*outside.*not the official archive"),
        ("in/../../outside", "", "is unsafe .*outside.*not the official archive"),
        # A link in place of a member could expose any file of this machine as text.
        ("in/a.en", "/etc/passwd", "is unsafe .*absolute"),
        ("in/a.en", "b", "is not a regular file"),
    ],
)
def test_an_unsafe_member_is_refused(data: Path, name: str, target: str, message: str) -> None:
    with tarfile.open(data / "x.tgz", "w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = (tarfile.SYMTYPE, target) if target else (tarfile.REGTYPE, "")
        archive.addfile(member)
    with pytest.raises(UserError, match=message):
        taken(data)
    assert not list(data.parent.rglob("outside"))


@pytest.mark.parametrize("known", [True, False])
def test_a_file_that_is_no_complete_archive_is_reported(data: Path, known: bool) -> None:
    (data / "x.tgz").write_bytes(b"<html>not found</html>\n" * 100)
    with pytest.raises(UserError, match=r"x.tgz is damaged \(.*move it elsewhere and download it again"):
        taken(data, known=known)
    for name in ("x.tgz", "x.tar"):
        write_archive(data / name, {"in/a.en": text([str(i) for i in range(9999)]), "in/a.de": b"b\n"})
        (data / name).write_bytes((data / name).read_bytes()[:5000])
        with pytest.raises(UserError, match=rf"{name} is damaged \(.*end"):
            taken(data, name, known=known)


def test_a_stage_without_its_lock_ends_after_its_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watching thread's LockLostError ends the stage, unless the download itself has failed."""
    monkeypatch.setattr(archives, "POLL_S", 0.05)
    lost = Context(tmp_path, build=Build(tmp_path, is_ours=lambda: False))
    archive, origin = Archive(path="x.tgz", source="a", target="b"), Origin((), None, tmp_path)
    with pytest.raises(LockLostError, match=r"^another command has taken"), report_downloads(lost, [archive], origin):
        pass
    with pytest.raises(UserError, match=r"^no server$"), report_downloads(lost, [archive], origin):
        raise UserError("no server")


def test_progress_goes_on_after_an_error_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download whose size cannot be read at first, here a link to itself, is reported once it can."""
    monkeypatch.setattr(archives, "POLL_S", 0.05)
    archive, members = tmp_path / "x.tgz", Archive(path="x.tgz", source="a", target="b")
    events: list[dict[str, Any]] = []
    archive.symlink_to(archive)
    with report_downloads(Context(tmp_path, events.append), [members], Origin((), None, tmp_path)):
        time.sleep(0.3)
        archive.unlink()
        archive.write_bytes(bytes(2_000_000))
    assert events[-1] == {"done": 2.0, "total": 2.0, "unit": "MB"}


@pytest.mark.parametrize("data", [None, Path()])
def test_too_small_a_disk_for_the_text_is_reported(tmp_path: Path, data: Path | None) -> None:
    """Before anything is downloaded. Archives that are there already need no room."""
    origin = Origin((), data, tmp_path / "downloads")
    origin.check([], tmp_path / "text", Amount(10, 10))
    (tmp_path / "text").mkdir()
    with open(tmp_path / "text/00000.en", "wb") as shard:  # of an earlier attempt, with no bytes on the disk
        shard.truncate(2 * 10**9)
    origin.check([], tmp_path / "text", Amount(None, disk_usage(tmp_path).free + 1e9))
    with pytest.raises(UserError, match=r"the text needs 999999998\.0 GB, but the disk of .*text has only"):
        origin.check([], tmp_path / "text", Amount(None, 1e18))
    if data is None:
        huge = Archive(path="x.tgz", source="a", target="b", size_bytes=10**15)
        with pytest.raises(UserError, match=r"the text needs 1000000\.0 GB, but the disk of .*downloads has only"):
            origin.check([huge], tmp_path / "text", Amount())
