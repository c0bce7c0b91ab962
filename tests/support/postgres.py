"""A PostgreSQL of the machine's own binaries, in a temporary folder, on 127.0.0.1 alone."""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.tiny_training import free_port

USER, DATABASE = "aiayn", "mlflow"


def binaries() -> Path | None:
    """Returns the folder of PostgreSQL's binaries, the newest where Debian has several; None if there are none."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(versions, key=lambda path: float(path.parent.name), default=None)


@contextmanager
def postgres() -> Iterator[str]:
    """Starts a server with an empty database and yields its address, which has a password, for SQLAlchemy."""
    folder = Path(tempfile.mkdtemp(prefix="aiayn-postgres-"))
    password, port, programs = secrets.token_hex(8), free_port(), binaries()
    assert programs
    demote: dict[str, object] = {}
    if os.geteuid() == 0:  # as which PostgreSQL refuses to run
        account = pwd.getpwnam("postgres")
        os.chown(folder, account.pw_uid, account.pw_gid)
        demote = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    told = folder / "password"
    told.write_text(password)
    told.chmod(0o644)

    def called(name: str, *arguments: str) -> None:
        done = subprocess.run([programs / name, *arguments], cwd=folder, stdout=log, stderr=log, check=False, **demote)
        assert done.returncode == 0, (folder / "log").read_text()

    data = str(folder / "data")
    listening = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"
    with (folder / "log").open("ab") as log:
        try:
            called(
                "initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", f"--pwfile={told}", "--no-sync", "-E", "UTF8"
            )
            called("pg_ctl", "-D", data, "-o", listening, "-w", "-l", f"{data}/server.log", "start")
            try:
                environment = {**os.environ, "PGPASSWORD": password}
                where = ["-h", "127.0.0.1", "-p", str(port), "-U", USER]
                subprocess.run([programs / "createdb", *where, DATABASE], env=environment, check=True, timeout=60)
                yield f"postgresql+psycopg2://{USER}:{password}@127.0.0.1:{port}/{DATABASE}"
            finally:
                called("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
