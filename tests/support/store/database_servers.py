"""PostgreSQL and MariaDB servers of the tests' own: with a folder of their own, as an unprivileged user.

Debian's packages are only the programs: no server of the system is used or started.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine, create_engine, inspect, make_url, text
from sqlalchemy.exc import DBAPIError

from pinner.store.database import schema

_START_SECONDS = 90
_STOP_SECONDS = 30
_USER = "postgres"
"""Both servers refuse to run as root. Debian's package of PostgreSQL makes this user."""


class DatabaseServer:
    """A running server; ``database`` makes an empty database."""

    def __init__(self, folder: Path, command: Sequence[str], address: URL, tune: str) -> None:
        """``address`` is the URL of a superuser; ``tune`` is added to CREATE DATABASE."""
        self._folder = folder
        self._command = command
        self._address = address
        self._tune = tune
        self._count = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and wait until it answers."""
        with (self._folder / "output").open("ab") as output:
            self._process = _popen(self._command, self._folder, stdout=output, stderr=output)
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._folder / "output").read_text()[-2000:])
            time.sleep(0.05)

    def stop(self, kind: int = signal.SIGTERM) -> None:
        """End the server: SIGTERM (PostgreSQL waits for its clients), SIGINT (it does not), SIGKILL."""
        if self._process is not None:
            self._process.send_signal(kind)
            self._process.wait(_STOP_SECONDS)
            self._process = None

    def kill(self) -> None:
        """End the server at once, as a power failure does. SIGKILL would leave PostgreSQL's shared memory behind."""
        self.stop(signal.SIGQUIT if self._address.get_backend_name() == "postgresql" else signal.SIGKILL)

    def restart(self) -> None:
        """Kill the server and start it again."""
        self.kill()
        self.start()

    def database(self, template: str = "") -> str:
        """The URL of a new database; ``template`` names the one to copy (PostgreSQL)."""
        self._count += 1
        name = f"pinner{self._count}"
        self.execute(f"CREATE DATABASE {name} {f'TEMPLATE {template}' if template else self._tune}")
        return self._address.set(database=name).render_as_string(hide_password=False)

    def drop(self, url: str) -> None:
        """Drop a database, also while it has clients."""
        force = " WITH (FORCE)" if self._address.get_backend_name() == "postgresql" else ""
        self.execute(f"DROP DATABASE {url.partition('?')[0].rpartition('/')[2]}{force}")

    def execute(self, statement: str) -> None:
        """Execute a statement as the superuser."""
        with _engine(self._address, isolation_level="AUTOCOMMIT") as engine, engine.connect() as connection:
            connection.execute(text(statement))

    @contextmanager
    def changed(self, settings: Mapping[str, str | int]) -> Iterator[None]:
        """Change global variables of MariaDB for the duration of the context."""
        # One connection: a new one would have the changed settings.
        with _engine(self._address, isolation_level="AUTOCOMMIT") as engine, engine.connect() as connection:
            earlier = {name: connection.execute(text(f"SELECT @@GLOBAL.{name}")).scalar_one() for name in settings}
            try:
                for name, value in settings.items():
                    connection.execute(text(f"SET GLOBAL {name} = :value"), {"value": value})
                yield
            finally:
                for name, value in earlier.items():
                    connection.execute(text(f"SET GLOBAL {name} = :value"), {"value": value})

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except DBAPIError:
            return False
        return True


def _postgresql(folder: Path) -> DatabaseServer:
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    initdb = [str(programs / "initdb"), "-D", str(folder / "data"), "-U", "pinner", "-A", "trust", "-E", "UTF8"]
    _run([*initdb, "--locale=C.UTF-8", "--no-sync"], folder)
    # Commits still end in the order that the tests check; only the disk is spared.
    settings = ["fsync=off", f"unix_socket_directories={folder}", "listen_addresses=", "max_connections=60"]
    command = [str(programs / "postgres"), "-D", str(folder / "data"), *(f"--{each}" for each in settings)]
    address = URL.create("postgresql+psycopg", "pinner", database="postgres", query={"host": str(folder)})
    return DatabaseServer(folder, command, address, "")


def _mariadb(folder: Path) -> DatabaseServer:
    data = f"--datadir={folder / 'data'}"
    small = ["--innodb-log-file-size=16M", "--innodb-buffer-pool-size=32M", "--skip-log-bin"]
    install = ["mariadb-install-db", "--no-defaults", data, "--auth-root-authentication-method=normal"]
    _run([*install, "--skip-test-db", *small], folder)
    # PyMySQL does not close a Unix socket that it cannot connect, and a test fails because of the warning.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    files = [data, f"--socket={folder}/socket", f"--pid-file={folder}/pid"]
    listen = ["--bind-address=127.0.0.1", f"--port={port}", "--lock-wait-timeout=20"]
    command = ["/usr/sbin/mariadbd", "--no-defaults", *files, *listen, "--innodb-flush-log-at-trx-commit=2", *small]
    address = URL.create("mariadb+pymysql", "root", host="127.0.0.1", port=port, database="mysql")
    # The default character set of many servers: the migrations must convert it.
    return DatabaseServer(folder, command, address, "CHARACTER SET latin1")


SERVERS: dict[str, Callable[[Path], DatabaseServer]] = {"postgresql": _postgresql, "mariadb": _mariadb}


def missing(kind: str) -> str:
    """The reason why the server cannot run here; empty if it can."""
    if kind == "postgresql":
        return "" if any(Path("/usr/lib/postgresql").glob("*/bin/initdb")) else "not installed: postgresql"
    return "" if shutil.which("mariadb-install-db") else "not installed: mariadb-server-core"


@contextmanager
def database_server(kind: str) -> Iterator[DatabaseServer]:
    """A server (a key of SERVERS) that runs for the duration of the context."""
    # A short path, because the path of a Unix socket has at most 107 bytes; pytest's folders admit only their owner.
    with tempfile.TemporaryDirectory(prefix=f"pinner-{kind}-") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            account = pwd.getpwnam(_USER)
            os.chown(folder, account.pw_uid, account.pw_gid)
        server = SERVERS[kind](folder)
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGINT if kind == "postgresql" else signal.SIGKILL)


def _run(command: Sequence[str], folder: Path) -> None:
    process = _popen(command, folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output, _ = process.communicate()
    assert process.returncode == 0, output.decode()


def _popen(command: Sequence[str], folder: Path, **streams: object) -> subprocess.Popen[bytes]:
    user = {"user": _USER, "group": pwd.getpwnam(_USER).pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    # A MariaDB that starts deletes all temporary tables in its TMPDIR, those of other servers too.
    environment = {"PATH": "/usr/sbin:/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder), "LC_ALL": "C.UTF-8"}
    return subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, **user, **streams)


_TRIGGERS = 4
"""The triggers of both audit trails on MariaDB."""

DATABASES = ("sqlite", *SERVERS)
"""The kinds of database that pinner supports."""

ABOVE_THE_STORE = (
    "sqlite",
    *(pytest.param(kind, marks=pytest.mark.slow("another database above the store")) for kind in SERVERS),
)
"""The kinds of database of tests whose subject is not the store: the fast ones use SQLite."""


class Databases:
    """The servers of one test run, and databases of the newest schema on them."""

    def __init__(self, stack: ExitStack) -> None:
        """``stack`` ends the servers."""
        self._stack = stack
        self._servers: dict[str, DatabaseServer] = {}
        self._prepared: dict[str, str] = {}

    def server(self, kind: str) -> DatabaseServer:
        """The server of a kind; it is started once."""
        if kind not in self._servers:
            if why := missing(kind):
                pytest.skip(why)
            self._servers[kind] = self._stack.enter_context(database_server(kind))
        return self._servers[kind]

    def own(self, kind: str, folder: Path) -> str:
        """The URL of a new database that no other test gets: its schema is not made yet."""
        return f"sqlite:///{folder}/own.sqlite" if kind == "sqlite" else self.server(kind).database()

    def fresh(self, kind: str, folder: Path) -> str:
        """The URL of a database of the newest schema without rows; that of SQLite is a file in ``folder``.

        Of PostgreSQL it is a copy of a migrated database. MariaDB cannot copy and takes a second to migrate, so a test
        gets the database of the test before, emptied.
        """
        if kind == "sqlite":
            return f"sqlite:///{folder}/db/pinner.sqlite"
        server = self.server(kind)
        url = self._prepared.get(kind)
        if url is None or (kind == "mariadb" and not _emptied(url)):
            url = self._prepared[kind] = server.database()
            with _engine(url) as engine:
                schema.ensure(engine)
        return server.database(template=str(make_url(url).database)) if kind == "postgresql" else url


def _emptied(url: str) -> bool:
    """Delete all rows; False if a test has changed the schema."""
    with _engine(url) as engine, engine.begin() as connection:
        if connection.execute(text("SELECT version_num FROM alembic_version")).scalar() != schema.NEWEST:
            return False
        if len(connection.execute(text("SHOW TRIGGERS")).all()) != _TRIGGERS:
            return False
        connection.execute(text("SET FOREIGN_KEY_CHECKS = 0"))
        for table in inspect(connection).get_table_names():
            if table not in ("alembic_version", "audit_chain"):
                connection.execute(text(f"TRUNCATE {table}"))
        connection.execute(text("SET FOREIGN_KEY_CHECKS = 1"))
        connection.execute(text("DELETE FROM audit_chain"))
        connection.execute(text("INSERT INTO audit_chain VALUES (1, 0, '', 0, '')"))
    return True


@contextmanager
def _engine(url: URL | str, **options: Any) -> Iterator[Engine]:
    engine = create_engine(url, **options)
    try:
        yield engine
    finally:
        engine.dispose()
