"""pipeline.environment: what the user has set stays."""

import pytest

from pipeline.environment import worker_environment


def test_environment_that_the_user_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count or a value of glibc's is passed on; a policy for waiting is not overruled by a count."""
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "MALLOC_ARENA_MAX"):
        monkeypatch.delenv(name, raising=False)
    assert (worker_environment()["GOMP_SPINCOUNT"], worker_environment()["MALLOC_ARENA_MAX"]) == ("3000", "1")
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "3")
    assert (worker_environment()["GOMP_SPINCOUNT"], worker_environment()["MALLOC_ARENA_MAX"]) == ("7", "3")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.delenv("GOMP_SPINCOUNT")
    assert "GOMP_SPINCOUNT" not in worker_environment()
