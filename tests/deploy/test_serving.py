"""Who a server lets in: exactly the keys of the consortium's list, also after a revocation, a new key and a restart."""

from __future__ import annotations

import datetime as dt
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("cryptography")

from apiece.config.settings import Config
from apiece.consortium.admission import admit, revoke
from apiece.consortium.certificates import DAYS, certificate, certify, ended
from apiece.consortium.folder import make, renew
from apiece.consortium.keys import make_key
from apiece.consortium.naming import Server
from apiece.deploy import flower_commands, serving
from apiece.deploy.flower_commands import Registered
from apiece.deploy.request import FOLDER, Request, Terms
from apiece.deploy.serving import Coordinator
from apiece.errors import UserError

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class SuperLink:
    """The three commands about nodes, with what Flower does with them: it numbers nodes, and takes no key twice."""

    def __init__(self) -> None:
        self.nodes: list[Registered] = []
        self.ever: list[str] = []

    def registered(self, connection):
        return tuple(self.nodes)

    def register(self, path: Path, name: str, connection):
        key = path.read_text().strip()
        assert key not in self.ever, "Flower refuses a key that it had before"
        self.ever.append(key)
        self.nodes.append(Registered(name, key, 7000 + len(self.ever), "online"))

    def unregister(self, number: int, connection):
        assert number in {node.number for node in self.nodes}
        self.nodes = [node for node in self.nodes if node.number != number]


@pytest.fixture
def link(monkeypatch):
    made = SuperLink()
    for name in ("registered", "register", "unregister"):
        monkeypatch.setattr(flower_commands, name, getattr(made, name))
    return made


def joined(folder: Path, name: str, **words) -> str:
    """A node's key is made and admitted; gives its public key."""
    node = folder / "nodes" / name
    for old in ("node.key", "request.toml"):
        (node / old).unlink(missing_ok=True)
    make_key(node)
    return admit(folder, node / "request.toml", NOW, **words).public_key.strip()


def test_the_keys_of_the_list_are_let_in_and_no_others(tmp_path, link):
    folder = tmp_path / "consortium"
    make(folder, ["north", "south"], Server("localhost", 8443), NOW)
    north, south = joined(folder, "north"), joined(folder, "south")
    said: list[str] = []
    server = Coordinator(folder, tmp_path / "state", "127.0.0.1", 8000, said.append)
    let_in = lambda: {(node.name, node.public_key) for node in link.nodes}

    server._admit()
    assert let_in() == {("north", north), ("south", south)}

    revoke(folder, "north", NOW)
    server._admit()
    assert let_in() == {("south", south)}, "the node that was revoked, and not another"
    assert any("'north'" in line and "no longer" in line for line in said)

    again = Coordinator(folder, tmp_path / "state", "127.0.0.1", 8000, said.append)  # it was killed, and knows nothing
    again._admit()
    assert let_in() == {("south", south)}

    new = joined(folder, "south", replace=True)
    again._admit()
    assert let_in() == {("south", new)} and new != south


def asked(state: Path, out: Path) -> Request:
    request = Request(state / FOLDER / "run.toml")
    request.write(Config(out=str(out)), Terms())
    return request


def test_a_run_whose_folder_the_server_cannot_write_is_refused_before_anything_starts(tmp_path, link, monkeypatch):
    folder, submitted = tmp_path / "consortium", list[str]()
    make(folder, ["north"], Server("localhost", 8443), dt.datetime.now(dt.UTC))
    monkeypatch.setattr(flower_commands, "submit", lambda connection, path: submitted.append(path.stem))
    server = Coordinator(folder, tmp_path / "state", "127.0.0.1", 8000, lambda line: None)

    request = asked(tmp_path / "state", Path("/proc/runs/first"))  # nobody writes there
    server._goes_on()
    assert not submitted and "cannot write there; give a folder that both reach, such as" in str(request.ended())

    request.path.unlink()
    request.reopen()
    request = asked(tmp_path / "state", tmp_path / "runs" / "first")
    (tmp_path / "runs").mkdir()  # another run has begun meanwhile
    server.submitted.clear()
    server._goes_on()
    assert submitted == ["run"] and request.ended() is None


def test_a_server_that_is_shown_another_folder_of_that_name_refuses_the_run(tmp_path):
    request = asked(tmp_path / "state", tmp_path / "home" / "me" / "first")
    request.refuse_out_of_reach()
    tmp_path.rename(tmp_path.with_name("hidden"))  # as ProtectHome and PrivateTmp do
    tmp_path.mkdir()
    hidden = Request(tmp_path.with_name("hidden") / "state" / FOLDER / "run.toml")
    with pytest.raises(UserError, match="is shown another folder by that name"):
        hidden.refuse_out_of_reach()


def test_a_full_disk_is_said_once_and_nothing_is_submitted_until_there_is_room(tmp_path, link, monkeypatch):
    folder, said, submitted = tmp_path / "consortium", list[str](), list[str]()
    make(folder, ["north"], Server("localhost", 8443), dt.datetime.now(dt.UTC))
    asked(tmp_path / "state", tmp_path / "runs")
    monkeypatch.setattr(flower_commands, "submit", lambda connection, path: submitted.append(path.stem))
    server, free = Coordinator(folder, tmp_path / "state", "127.0.0.1", 8000, said.append), 0
    monkeypatch.setattr("apiece.deploy.serving.shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    server._goes_on()
    server._goes_on()
    assert not submitted and len(said) == 1 and "the disk is full, with 0 bytes free: make room" in said[0]
    free = 1 << 30
    server._goes_on()
    assert submitted == ["run"] and "there is room again" in said[1]


def test_a_server_that_goes_on_says_once_that_its_certificate_ends_and_once_that_it_has_ended(tmp_path, link):
    folder, said, real = tmp_path / "consortium", list[str](), dt.datetime.now(dt.UTC)
    make(folder, ["north"], Server("localhost", 8443), real - dt.timedelta(days=DAYS - 20))
    (tmp_path / "state").mkdir()
    server = Coordinator(folder, tmp_path / "state", "127.0.0.1", 8000, said.append)

    def goes_on() -> None:
        server.listed = -serving.LISTED
        server._goes_on()

    goes_on()
    goes_on()
    assert len(said) == 1 and said[0].startswith("the server's certificate ends on ")
    certify(folder, "localhost", real - dt.timedelta(days=DAYS + 1))
    goes_on()
    goes_on()
    assert said[1:] == [f"{ended(certificate(folder / 'server' / 'server.pem'))}: `apiece deploy renew {folder}`."]
    renew(folder, real)
    goes_on()
    assert len(said) == 2


def test_the_database_of_the_superlink_has_large_pages_and_is_made_once(tmp_path):
    for _ in range(2):  # a server that starts again finds what it kept
        with closing(sqlite3.connect(flower_commands.database(tmp_path))) as kept:
            assert kept.execute("PRAGMA page_size").fetchone() == (1 << 16,)
            kept.execute("PRAGMA journal_mode = WAL")
            kept.execute("CREATE TABLE IF NOT EXISTS t (number INTEGER)")
            kept.execute("INSERT INTO t VALUES (1)")
            kept.commit()
            rows = kept.execute("SELECT count(*) FROM t").fetchone()
    assert rows == (2,)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_is_none_is_refused(tmp_path, port):
    with pytest.raises(UserError, match=f"--port {port} must be from 1 to 65535."):
        Coordinator(tmp_path, tmp_path, "127.0.0.1", port, print)


def test_a_port_that_another_program_has_is_refused_and_no_run_is_ready(tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "GRACE", 0.2)
    monkeypatch.setattr(Coordinator, "prepare", lambda self: [None, None])
    with socket.create_server(("127.0.0.1", 0)) as other:
        port, said = other.getsockname()[1], list[str]()
        with pytest.raises(UserError, match=f"another program has the port {port}: end it, or give another --port"):
            Coordinator(tmp_path, tmp_path / "state", "127.0.0.1", port, said.append).serve(lambda: False)
    assert not any("ready" in line for line in said)
