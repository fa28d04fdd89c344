"""Who is admitted: by name, by key, and never by accident."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
from support.consortia import NOW, made, request_of

from apiece import UserError
from apiece.consortium.admission import admit, admitted, revoke
from apiece.consortium.keys import fingerprint, make_key, read_request
from apiece.system import files
from apiece.system.files import read_toml


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("made") / "consortium", "north", "south", "west")


@pytest.fixture
def consortium(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "consortium"))


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def new_key(consortium: Path, name: str) -> Path:
    """The request of a node that made its key anew."""
    for file in ("node.key", "request.toml"):
        (consortium / "nodes" / name / file).unlink(missing_ok=True)
    return request_of(consortium, name)


def test_those_who_were_admitted_are_read_by_name(consortium):
    assert admitted(consortium) == ()
    for name in ("west", "north"):
        node = admit(consortium, request_of(consortium, name), NOW)
        assert node.name == name and node.fingerprint == fingerprint(node.public_key)
        assert (consortium / "nodes" / name / "key.pub").read_text() == f"{node.public_key}\n"
    assert [node.name for node in admitted(consortium)] == ["north", "west"]
    assert {node.public_key for node in admitted(consortium)} == {
        read_toml(consortium / "nodes" / name / "request.toml")["public_key"] for name in ("north", "west")
    }


def test_flower_takes_the_public_key(consortium):
    """By the check of its own command `flwr supernode register`."""
    register = pytest.importorskip("flwr.cli.supernode.register")
    admit(consortium, request_of(consortium, "north"), NOW)
    assert register.try_load_public_key(consortium / "nodes" / "north" / "key.pub").startswith(b"-----BEGIN PUBLIC KEY")


def test_the_same_request_again_changes_nothing(consortium):
    request = request_of(consortium, "north")
    node, before = admit(consortium, request, NOW), content(consortium)
    assert admit(consortium, request, NOW) == node and content(consortium) == before


def test_another_key_needs_replace_and_revokes_the_first(consortium):
    first = admit(consortium, request_of(consortium, "north"), NOW)
    before = content(consortium)
    kept = (consortium / "nodes" / "north" / "request.toml").read_bytes()
    again = new_key(consortium, "north")
    with pytest.raises(UserError, match=f"has been admitted with the key {first.fingerprint}: give --replace"):
        admit(consortium, again, NOW)
    assert {path: text for path, text in content(consortium).items() if path.name in ("admitted.toml", "key.pub")} == {
        path: text for path, text in before.items() if path.name in ("admitted.toml", "key.pub")
    }
    second = admit(consortium, again, NOW, replace=True)
    assert admitted(consortium) == (second,) and second != first
    again.write_bytes(kept)
    with pytest.raises(UserError, match="the key of north was revoked on 2026-11-25: have the node remove node.key"):
        admit(consortium, again, NOW, replace=True)


def test_a_revoked_node_is_off_the_list_and_comes_back_with_a_new_key_alone(consortium):
    request = request_of(consortium, "north")
    admit(consortium, request, NOW)
    admit(consortium, request_of(consortium, "south"), NOW)
    revoke(consortium, "north", NOW)
    assert [node.name for node in admitted(consortium)] == ["south"]
    assert not (consortium / "nodes" / "north" / "key.pub").exists()
    with pytest.raises(UserError, match="was revoked"):
        admit(consortium, request, NOW)
    with pytest.raises(UserError, match="north is not admitted, so there is nothing to revoke"):
        revoke(consortium, "north", NOW)
    admit(consortium, new_key(consortium, "north"), NOW)
    assert [node.name for node in admitted(consortium)] == ["north", "south"]


def test_a_node_whose_folder_is_gone_can_be_revoked(consortium):
    admit(consortium, request_of(consortium, "north"), NOW)
    shutil.rmtree(consortium / "nodes" / "north")
    revoke(consortium, "north", NOW)
    assert admitted(consortium) == ()
    with pytest.raises(UserError, match="'north' is no node of this consortium; did you mean 'south'"):
        revoke(consortium, "north", NOW)


def test_the_fingerprint_that_was_read_out_is_compared(consortium):
    request = request_of(consortium, "north")
    right = fingerprint(read_toml(request)["public_key"])
    wrong = right[:-1] + ("0" if right[-1] != "0" else "1")
    for said in (wrong, right[:-5], "no"):
        with pytest.raises(UserError, match="do not admit it before the party reads out the same"):
            admit(consortium, request, NOW, said=said)
        assert admitted(consortium) == ()
    for said in (right, right.upper(), right.replace(" ", "")):
        assert admit(consortium, request, NOW, said=said).fingerprint == right


def test_a_key_is_of_one_node(consortium, tmp_path):
    """South takes the key of north, and signs a request of its own name with it."""
    admit(consortium, request_of(consortium, "north"), NOW)
    from apiece.consortium import keys
    from apiece.consortium.private import load

    stolen = load(consortium / "nodes" / "north" / "node.key")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys.ec, "generate_private_key", lambda curve: stolen)
        make_key(consortium / "nodes" / "south")
    with pytest.raises(UserError, match="south asks with the key of north: each node makes a key of its own"):
        admit(consortium, consortium / "nodes" / "south" / "request.toml", NOW)


def test_a_name_that_is_no_nodes_is_refused_with_the_nearest(consortium, tmp_path):
    shutil.copytree(consortium / "nodes" / "north", tmp_path / "east")
    (tmp_path / "east" / "node.toml").write_text("name = 'norht'\nserver = 'fl.example.org:8443'\n")
    make_key(tmp_path / "east")
    with pytest.raises(UserError, match="'norht' is no node of this consortium; did you mean 'north'"):
        admit(consortium, tmp_path / "east" / "request.toml", NOW)
    with pytest.raises(UserError, match="'east' is no node of this consortium; .*Allowed: north, south, west"):
        revoke(consortium, "east", NOW)
    with pytest.raises(UserError, match="is no name for a node"):
        revoke(consortium, "../north", NOW)


def test_a_folder_that_is_no_consortiums_is_refused(tmp_path):
    for act in (lambda f: admitted(f), lambda f: revoke(f, "north", NOW), lambda f: admit(f, f / "r.toml", NOW)):
        with pytest.raises(UserError, match="is no consortium's folder"):
            act(tmp_path / "none")
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(UserError, match="is no consortium's folder"):
            act(tmp_path / "empty")


ROW = {"name": "north", "admitted": "2026-11-25T12:00:00Z"}


@pytest.mark.parametrize(
    "rows, said",
    [
        ([{}], "has a node that is none"),
        ([ROW], "has a node that is none"),
        (["north"], "has a node that is none"),
        ("north", "has a node that is none"),
        ([ROW | {"public_key": 3}], "has a node that is none"),
        ([ROW | {"public_key": "$", "secret": "x"}], "has a node that is none"),
        ([ROW | {"public_key": "ssh-rsa AAAA"}], "has no public key of the curve P-384"),
        ([ROW | {"public_key": "$", "name": "../north"}], "is no name for a node"),
        ([ROW | {"public_key": "$"}, ROW | {"public_key": "$", "name": "south"}], "twice: restore it"),
        ([ROW | {"public_key": "$"}] * 2, "has north twice: restore it"),
    ],
)
def test_a_damaged_list_admits_nobody(consortium, rows, said):
    key = read_toml(request_of(consortium, "north"))["public_key"]
    filled = [{k: key if v == "$" else v for k, v in row.items()} if isinstance(row, dict) else row for row in rows]
    (consortium / "admitted.toml").write_text(tomli_w.dumps({"node": filled if isinstance(rows, list) else rows}))
    with pytest.raises(UserError, match=said):
        admitted(consortium)


def test_a_comment_behind_a_key_does_not_make_it_another(consortium):
    request = request_of(consortium, "north")
    admit(consortium, request, NOW)
    key, text = admitted(consortium)[0].public_key, (consortium / "admitted.toml").read_text()
    (consortium / "admitted.toml").write_text(text.replace(key, f"{key} somebody").replace('"north"', '"south"'))
    assert [(node.name, node.public_key) for node in admitted(consortium)] == [("south", key)]
    with pytest.raises(UserError, match="north asks with the key of south"):
        admit(consortium, request, NOW)


def test_a_crash_while_the_list_is_written_leaves_it_whole(consortium, monkeypatch):
    admit(consortium, request_of(consortium, "north"), NOW)
    request = request_of(consortium, "south")

    def crash(source: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        admit(consortium, request, NOW)
    monkeypatch.undo()
    assert [node.name for node in admitted(consortium)] == ["north"]
    admit(consortium, request, NOW)
    assert [node.name for node in admitted(consortium)] == ["north", "south"]


@pytest.mark.slow
def test_of_several_commands_at_once_none_undoes_another(consortium):
    script = "import sys; from apiece.cli import main; main(sys.argv[1:])"
    commands = [
        [sys.executable, "-c", script, "deploy", "admit", str(consortium), str(request_of(consortium, name))]
        for name in ("north", "south", "west")
    ]
    begun = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    assert all("is admitted with the key" in process.communicate()[0] for process in begun)
    assert [node.name for node in admitted(consortium)] == ["north", "south", "west"]


def test_a_request_is_read_for_this_authority(consortium):
    request = request_of(consortium, "north")
    with pytest.raises(UserError, match="this one has 0000"):
        read_request(request, "0000")
