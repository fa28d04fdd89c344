"""The folder of a consortium: what it holds, that it is made whole or not at all, and that the commands say so."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.consortia import NOW, made
from support.outer import cli, sentence

from apiece import UserError, consortium
from apiece.commands import COMMANDS
from apiece.consortium import folder as folders
from apiece.consortium import naming
from apiece.system import files
from apiece.system.files import read_toml

NODE = ["Containerfile", "README.md", "apiece-join.service", "ca.crt", "compose.yaml", "node.toml"]
SERVER = "Caddyfile Containerfile apiece-serve.service compose.yaml nginx.conf server.key server.pem".split()


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A consortium that no test changes."""
    return made(tmp_path_factory.mktemp("made") / "consortium")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_has_its_files_and_no_private_key_travels(there):
    assert names(there) == ["README.md", "ca.crt", "ca.key", "chart", "consortium.toml", "nodes", "server"]
    assert names(there / "server") == SERVER and names(there / "nodes") == ["north", "south"]
    assert names(there / "nodes" / "north") == NODE
    private = [path for path in there.rglob("*") if path.is_file() and "PRIVATE KEY" in path.read_text()]
    assert sorted(path.relative_to(there).as_posix() for path in private) == ["ca.key", "server/server.key"]
    assert read_toml(there / "nodes" / "south" / "node.toml") == {"name": "south", "server": "fl.example.org:8443"}
    assert folders.address(there) == ("fl.example.org", 8443)


def test_nothing_of_a_template_is_left_open(there):
    for path in there.rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert not any(mark in text for mark in ("<%", "<<", ">>", "<#")), path
    assert "fl.example.org:8443" in (there / "nodes" / "north" / "README.md").read_text()


def words(text: str) -> list[str]:
    return text.split()[1:]


def test_what_units_containers_and_charts_execute_are_commands_that_exist(there, monkeypatch):
    """Their words are read up to where the command would begin."""
    units = [there / "server" / "apiece-serve.service", there / "nodes" / "north" / "apiece-join.service"]
    lines = [line for unit in units for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    found = [words(line) for line in lines]
    for place, name in ((there / "server", "serve"), (there / "nodes" / "north", "join")):
        found.append(yaml.safe_load((place / "compose.yaml").read_text())["services"][name]["command"])
    for chart in ("server", "node"):
        text = (there / "chart" / "templates" / f"{chart}.yaml").read_text()
        found += [json.loads(line.partition("args: ")[2]) for line in text.splitlines() if "args: " in line]
    assert [of[0] for of in found] == ["serve", "join"] * 3
    seen: list[object] = []
    monkeypatch.setattr("apiece.cli._do", seen.append)
    for of in found:
        assert cli(*of).code == 0, of
    assert [type(command) for command in seen] == [COMMANDS["serve"], COMMANDS["join"]] * 3


def test_a_folder_that_is_there_is_not_overwritten(there):
    before = {path: path.read_bytes() for path in there.rglob("*") if path.is_file()}
    sentence(cli("deploy", "init", there, "--nodes", "east"), "exists and is not overwritten", "apiece deploy add")
    assert {path: path.read_bytes() for path in there.rglob("*") if path.is_file()} == before


def test_an_empty_folder_is_taken_and_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    assert cli("deploy", "init", tmp_path / "empty", "--nodes", "north").code == 0
    (tmp_path / "file").write_text("")
    for where in ("file", "file/consortium"):
        sentence(cli("deploy", "init", tmp_path / where, "--nodes", "north"), "file is a file: give a folder")


@pytest.mark.parametrize("flags", [("--nodes", "North"), ("--nodes", "a,a"), ("--nodes", "a", "--server", "host")])
def test_bad_words_leave_nothing(tmp_path, flags):
    sentence(cli("deploy", "init", tmp_path / "consortium", *flags))
    assert names(tmp_path) == []


def test_after_a_crash_nothing_is_there_and_the_command_can_be_repeated(tmp_path, monkeypatch):
    write, count = files.atomic_write, 0

    def crash(path: Path, *rest) -> None:
        nonlocal count
        count += 1
        if count == 12:
            raise KeyboardInterrupt
        write(path, *rest)

    monkeypatch.setattr(folders, "atomic_write", crash)
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path / "consortium")
    assert names(tmp_path) == []
    monkeypatch.undo()
    assert names(made(tmp_path / "consortium") / "nodes") == ["north", "south"]


def test_a_node_is_added_and_no_other_is_touched(there, tmp_path):
    place = Path(shutil.copytree(there, tmp_path / "consortium"))
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert cli("deploy", "add", place, "east").code == 0
    assert names(place / "nodes") == ["east", "north", "south"] and names(place / "nodes" / "east") == NODE
    assert all(path.read_bytes() == text for path, text in before.items())
    sentence(cli("deploy", "add", place, "east"), "east exists: give a name that no node has")
    sentence(cli("deploy", "add", place, "East"), "is no name for a node")
    sentence(cli("deploy", "add", tmp_path, "east"), "is no consortium's folder")


@pytest.mark.parametrize(
    "text, said",
    [("host = 'a'", "has no host and port"), ("host = 3\nport = 1", "has no host and port"), ("=", "is no TOML file"),
     ("host = 'a b'\nport = 8443", "is no name of a host"), ("host = 'a'\nport = 0", "is no address")],
)  # fmt: skip
def test_damaged_settings_are_named(there, tmp_path, text, said):
    place = Path(shutil.copytree(there, tmp_path / "consortium"))
    (place / "consortium.toml").write_text(text)
    for command in (("add", place, "east"), ("renew", place)):
        sentence(cli("deploy", *command), said)


def test_the_commands_lead_from_a_folder_to_an_admitted_node(tmp_path):
    place = tmp_path / "consortium"
    said = cli("deploy", "init", place, "--nodes", "north,south", "--server", "fl.example.org:8443").out
    assert "authority's fingerprint is" in said and "cannot reach" not in said
    authority = said.partition("fingerprint is ")[2][:39]
    shutil.copytree(place / "nodes" / "north", tmp_path / "sent")
    said = cli("join", tmp_path / "sent", "--make-key").out
    assert said.count(authority) == 1  # what the coordinator reads out
    read_out = said.partition("read out on the phone: ")[2][:39]
    request = tmp_path / "sent" / "request.toml"
    sentence(cli("deploy", "admit", place, request, "--fingerprint", authority), "and not")
    ended = cli("deploy", "admit", place, request, "--fingerprint", read_out)
    assert ended.code == 0 and read_out in ended.out and "revoke" not in ended.out
    assert "apiece deploy revoke" in cli("deploy", "admit", place, request).out
    assert cli("deploy", "renew", place).code == 0
    assert cli("deploy", "revoke", place, "north").out == "north is revoked.\n"
    sentence(cli("deploy", "admit", place, request), "was revoked")
    sentence(cli("join", tmp_path / "sent", "--make-key"), "exists and is not made anew")
    sentence(cli("join", tmp_path / "sent", "--make-key", "--data", "own.npz"), "leave --data out")
    sentence(cli("join", tmp_path / "sent"), "give --data, or --make-key")


def test_a_server_on_this_machine_alone_is_said(tmp_path):
    assert "cannot reach localhost:8443" in cli("deploy", "init", tmp_path / "c", "--nodes", "north").out


def test_an_ipv6_address_is_listened_on(tmp_path):
    place = tmp_path / "consortium"
    folders.make(place, ("north",), naming.server("[2001:db8::1]:9443"), NOW)
    assert "listen [::]:9443 ssl;" in (place / "server" / "nginx.conf").read_text()
    assert read_toml(place / "nodes" / "north" / "node.toml")["server"] == "[2001:db8::1]:9443"


def test_without_the_extra_each_command_says_how_to_install_it(there, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    sentence(cli("deploy", "init", tmp_path / "c", "--nodes", "a"), "is needed for keys", 'pip install ".[flower]"')
    others = [("add", there, "x"), ("admit", there, "r"), ("revoke", there, "x"), ("renew", there)]
    for command in others:
        sentence(cli("deploy", *command), 'pip install ".[flower]"')
    sentence(cli("join", there / "nodes" / "north", "--make-key"), 'pip install ".[flower]"')
    with pytest.raises(UserError):
        consortium.library()


@pytest.mark.slow
def test_the_command_line_loads_nothing_of_it():
    heavy = "{'torch', 'numpy', 'cryptography', 'flwr', 'jinja2'}"
    subprocess.run([sys.executable, "-c", f"import sys, apiece.cli; assert not {heavy} & {{*sys.modules}}"], check=True)
