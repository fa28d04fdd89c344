"""Ranks on two machines: here two network namespaces, whose name means a loopback, with a cable between them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys

import pytest
import torch.distributed as dist
from support.helpers import gap
from support.outer import cli
from support.ranks import SETTINGS, model

from apiece.report import page
from apiece.system import network

pytestmark = pytest.mark.slow

NAMESPACES = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
NAMESPACES += [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
CABLE = """
set -e
hostname machine
printf '127.0.0.1 localhost\\n127.0.1.1 machine\\n' > hosts
mount --bind hosts /etc/hosts
mount -t tmpfs none /run
for n in 0 1; do ip netns add $n; done
ip link add cable0 netns 0 type veth peer name cable1 netns 1
for n in 0 1; do
    ip -netns $n address add 10.77.0.1$n/24 dev cable$n
    for device in lo cable$n; do ip -netns $n link set $device up; done
done
"""
BOTH = """
export WORLD_SIZE=2 MASTER_ADDR=10.77.0.10 MASTER_PORT=29571
RANK=1 nsenter --net=/run/netns/1 "$@" &
RANK=0 nsenter --net=/run/netns/0 "$@"
"""
PROGRAM = """
import os, shlex, subprocess, sys, time
from apiece.cli import main
from apiece.report import page
from apiece.system import network
from apiece.system.ranks import join

network.MISSED = 6
page.write_report = lambda *_: None
main(shlex.split(sys.argv[1]))
if os.environ["RANK"] == "1":
    subprocess.run(["ip", "link", "set", "cable1", "down"], check=True)
    time.sleep(60)
main(["resume", "many"])
"""


def namespaces(folder, script: str, *words: str) -> subprocess.CompletedProcess:
    threads = os.environ | {"OMP_NUM_THREADS": "1"}
    said = [*NAMESPACES, "bash", "-c", script, "_", *words]
    return subprocess.run(said, capture_output=True, text=True, timeout=300, env=threads, cwd=folder)


def test_two_machines_make_the_run_of_one_process_until_the_cable_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "write_report", lambda _, out, *rest: out)
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))) or namespaces(tmp_path, CABLE).returncode:
        pytest.skip("network namespaces cannot be made here")
    (tmp_path / "program.py").write_text(PROGRAM)
    run = f"run --algorithm scaffold --rounds 2 {SETTINGS} --out "
    done = namespaces(tmp_path, CABLE + BOTH, sys.executable, "program.py", run + "many")
    said = [line for line in done.stderr.splitlines() if line.startswith("apiece: ")]
    assert len(said) == 1 and "another rank of this run ended or cannot be reached" in said[0], done.stderr
    assert done.returncode == 2
    assert cli(*run.split(), tmp_path / "one").code == 0
    one, many = model(tmp_path / "one"), model(tmp_path / "many")
    assert max(gap(one[k], many[k]) for k in one) < 1e-10


# a row catches a side whose address is taken for the other
@pytest.mark.parametrize(
    "rank, way, told, found",
    [
        (1, "10.0.0.2 10.0.0.1", "127.0.0.1 127.0.1.1", "far"),
        (0, "127.0.0.1 127.0.1.1", "10.0.0.2 10.0.0.1", "near"),  # the others know at which address it is reached
        (0, "10.0.0.1 10.0.0.1", "10.0.0.2 10.0.0.1", "near"),
        (0, "127.0.0.1 127.0.0.1", "127.0.0.1 127.0.0.1", None),  # one machine: as gloo likes
        (0, "10.0.0.9 10.0.0.9", "10.0.0.2 10.0.0.9", None),  # an address of no interface here
    ],
)
def test_the_interface_is_the_one_towards_the_first_rank(monkeypatch, rank, way, told, found):
    monkeypatch.setenv("MASTER_ADDR", "machine")
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    monkeypatch.setattr(network, "_way", lambda host, port: tuple(way.split()))
    monkeypatch.setattr(network, "_address", {"near": "10.0.0.1", "far": "10.0.0.2", "lo": "127.0.0.1"}.get)
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, "far"), (3, "near")])
    store = dist.HashStore()
    store.set(f"way-{1 - rank}", told)
    network.name_interface(store, rank, 2)
    assert os.environ.get("GLOO_SOCKET_IFNAME") == found
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "mine")
    network.name_interface(store, rank, 2)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "mine"


def test_the_way_to_this_machine_is_a_loopback_and_so_is_none():
    assert network._way("127.0.0.1", 9) == ("127.0.0.1", "127.0.0.1") == network._way("::1", 9)
    assert any(network._address(name) == "127.0.0.1" for _, name in socket.if_nameindex())


def test_only_connections_made_meanwhile_are_watched():
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = socket.create_connection(server.getsockname())
        with network.watched():
            after = socket.create_connection(server.getsockname())
        alive = [c.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for c in (before, after)]
        before.close(), after.close()
    assert alive == [0, 1]
