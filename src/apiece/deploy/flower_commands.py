"""Flower's commands as we call them: without telemetry, without downloads, with a configuration of our own."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from apiece.errors import UserError, said, with_extra
from apiece.system import files

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
PATIENCE = 120.0  # seconds for a command
PAGE = 1 << 16  # bytes: the largest page of SQLite
APP = {
    "project": {
        "name": "apiece-deployed",
        "version": "1.0.0",
        "description": "a run of apiece on nodes",
        "license": "MIT",
        "dependencies": [],
    },
    "tool": {
        "flwr": {
            "app": {
                "publisher": "apiece",
                "components": {
                    "serverapp": "apiece.deploy.flower:server_app",
                    "clientapp": "apiece.deploy.flower:client_app",
                },
                "config": {"request": "", "virtual_nodes": ""},
            }
        }
    },
}


class Connection(NamedTuple):
    """How the coordinator's own commands reach its SuperLink: by the loopback address, with the authority's
    certificate, or without where there is none. `home` is a folder of ours for Flower's configuration.
    """

    home: Path
    port: int
    ca: Path | None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def answers(self) -> bool:
        """Whether the SuperLink takes connections."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0):
                return True
        except OSError:
            return False

    def write(self) -> None:
        """Make the folder: Flower's configuration, and the app that names ours."""
        files.make_folder(self.home / "app")
        trust = {"insecure": True} if self.ca is None else {"root-certificates": str(self.ca.absolute())}
        table = {"superlink": {"default": "apiece", "apiece": {"address": self.address} | trust}}
        files.atomic_write(self.home / "config.toml", tomli_w.dumps(table).encode())
        files.atomic_write(self.home / "app" / "pyproject.toml", tomli_w.dumps(APP).encode())


def environment(home: Path) -> dict[str, str]:
    """The environment of a process of Flower's, which finds Flower's other programs beside our interpreter."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return os.environ | QUIET | {"FLWR_HOME": str(home.absolute()), "PATH": path}


def program(name: str) -> str:
    """A program of Flower's, beside our own interpreter; UserError if it is not installed."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise UserError(f"nodes are reached through Flower, which is not here: {with_extra('flower')}.")
    return str(path)


def superlink(port: int, host: str, ca: Path, certificate: Path, key: Path, state: Path) -> list[str]:
    """What receives and hands out messages; it admits registered keys alone, and keeps its state in a file."""
    tls = ["--ssl-ca-certfile", str(ca), "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)]
    kept = ["--database", str(database(state)), "--superexec-auth-secret-file", str(state / "secret")]
    only = ["--enable-supernode-auth", "--isolation", "process", "--disable-runtime-dependency-installation"]
    return [program("flower-superlink"), "--host", host, "--port", str(port), *tls, *kept, *only]


def database(state: Path) -> Path:
    """The file of the SuperLink's state, made unless it is there, with the largest pages that SQLite has. A message is
    removed in one transaction, for which all others wait, at most five seconds. Where SQLite overwrites what it removes
    (Debian's does), this transaction writes the whole message, and takes half as long with large pages.
    """
    path = state / "superlink.db"
    if not path.exists():
        with closing(sqlite3.connect(":memory:")) as made:
            made.execute(f"PRAGMA page_size = {PAGE}")
            made.execute("VACUUM")  # else the file would be empty
            files.atomic_write(path, made.serialize(), 0o600)
    return path


def simulating(port: int) -> list[str]:
    """What receives runs, and runs each on virtual nodes of this machine."""
    if find_spec("ray") is None:
        raise UserError("Flower's simulation needs ray, which is not here: run pip install 'flwr[simulation]'.")
    only = ["--simulation", "--insecure", "--disable-runtime-dependency-installation"]
    return [program("flower-superlink"), *only, "--host", "127.0.0.1", "--port", str(port)]


def superexec(connection: Connection, state: Path) -> list[str]:
    """What starts the server's app."""
    at = ["--runtime-api-address", connection.address, "--root-certificates", str(connection.ca)]
    return [program("flower-superexec"), *at, "--superexec-auth-secret-file", str(state / "secret")]


def supernode(server: str, ca: Path, key: Path, state: Path, port: int) -> list[str]:
    """A node's part of Flower."""
    who = ["--root-certificates", str(ca), "--auth-supernode-private-key", str(key)]
    own = ["--port", str(port), "--node-config", f'state="{state.absolute()}"', "--isolation", "process"]
    only = ["--superexec-auth-secret-file", str(state / "secret")]
    return [program("flower-supernode"), "--superlink", server, *who, *own, *only]


def node_superexec(state: Path, port: int) -> list[str]:
    """What starts the process of each message on a node."""
    at = ["--runtime-api-address", f"127.0.0.1:{port}", "--insecure"]  # it never leaves the machine
    return [program("flower-superexec"), *at, "--superexec-auth-secret-file", str(state / "secret")]


def secret(state: Path) -> None:
    """Make what a folder's own processes know one another by, unless it is there."""
    if not (state / "secret").exists():
        files.atomic_write(state / "secret", secrets.token_bytes(32), 0o600)


def called(connection: Connection, *words: str) -> Any:
    """What a command of `flwr` answers in JSON; raises UserError if it fails."""
    command = [program("flwr"), *words, "--format", "json"]
    try:
        done = subprocess.run(
            command, env=environment(connection.home), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"`flwr {' '.join(words[:2])}` gave no answer in {PATIENCE:g} seconds: see the log.") from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {}
    if done.returncode or not answer or answer.get("success") is False:
        told = " ".join((answer.get("error-message") or done.stderr or done.stdout).split())[-400:].rstrip(".")
        raise UserError(f"`flwr {words[0]}` failed: {told}.")
    return answer


def register(public_key: Path, name: str, connection: Connection) -> str:
    """Let a node with this key in, by this name; gives its number."""
    return str(called(connection, "supernode", "register", str(public_key), "apiece", "--name", name)["node-id"])


class Registered(NamedTuple):
    """A node that Flower lets in: its name, its public key (the line of an OpenSSH file), its number, its status."""

    name: str
    public_key: str
    number: int
    status: str


def registered(connection: Connection) -> tuple[Registered, ...]:
    """The nodes that Flower lets in, by the client of `flwr supernode list`, whose output has no names and no keys."""
    import httpx
    from cryptography.hazmat.primitives import serialization as form
    from flwr.proto.control_pb2 import ListNodesRequest
    from flwr.supercore.control.control_http_client import ControlHttpClient

    assert connection.ca is not None, "a server of nodes has certificates"
    client = ControlHttpClient.from_server_address(connection.address, False, connection.ca.read_bytes(), ())
    try:
        infos = client.ListNodes(ListNodesRequest()).nodes_info
    except (httpx.HTTPError, ValueError) as error:
        do = ": `apiece deploy renew` if it ended, and restart the server" if "CERTIFICATE" in str(error) else ""
        raise UserError(f"the list of nodes cannot be had from the SuperLink ({said(error)}){do}.") from None
    finally:
        client.close()
    key = lambda pem: form.load_pem_public_key(pem).public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    there = [info for info in infos if info.status != "unregistered"]
    return tuple(Registered(i.name, key(i.public_key).decode(), i.node_id, i.status) for i in there)


def unregister(number: int, connection: Connection) -> None:
    """Let a node in no longer."""
    called(connection, "supernode", "unregister", str(number), "apiece")


def submit(connection: Connection, request: Path) -> str:
    """Submit a request to the SuperLink; gives the run's number there."""
    told = f"request={json.dumps(str(request.absolute()))}"
    return str(called(connection, "run", str(connection.home / "app"), "apiece", "-c", told).get("run-id"))


def submit_virtual(connection: Connection, request: Path, nodes: Path, count: int) -> str:
    """Submit a request for so many virtual nodes, whose folders are in `nodes`; gives the run's number."""
    told = f"request={json.dumps(str(request.absolute()))} virtual_nodes={json.dumps(str(nodes.absolute()))}"
    cores = os.cpu_count() or 1
    much = f"num-supernodes={count} client-resources-num-cpus=1 init-args-num-cpus={cores}"
    words = ["run", str(connection.home / "app"), "apiece", "-c", told, "--federation-config", much]
    return str(called(connection, *words).get("run-id"))
