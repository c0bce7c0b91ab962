import pickle
from pathlib import Path

import pytest

from pipeline.store.store import Store
from tests.support.s3_server import S3Server


@pytest.fixture
def in_bucket(at_s3: S3Server) -> Store:
    return Store.at(f"{at_s3.bucket()}/runs")


@pytest.fixture
def elsewhere(in_bucket: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Store:
    monkeypatch.setenv("AIAYN_CACHE", str(tmp_path / "another machine"))
    there: Store = pickle.loads(pickle.dumps(in_bucket))
    assert there.root != in_bucket.root
    return there


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return Store(tmp_path / "runs")
    return request.getfixturevalue("in_bucket")
