"""A node's key stays where it was made; a request is believed only if its own key signed all of it."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import tomli_w
from cryptography.hazmat.primitives.asymmetric import ec
from support.consortia import made

from apiece import UserError
from apiece.consortium import keys
from apiece.consortium.certificates import spoken
from apiece.consortium.private import load
from apiece.system import files
from apiece.system.files import read_toml


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("made") / "consortium")


@pytest.fixture
def node(consortium: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(consortium / "nodes" / "north", tmp_path / "north"))


def test_a_key_is_private_and_its_request_is_not_secret(node, consortium):
    request = keys.make_key(node)
    assert stat.S_IMODE((node / "node.key").stat().st_mode) == 0o600
    key = load(node / "node.key")
    assert isinstance(key.curve, ec.SECP384R1) and request == ("north", keys.public(key.public_key()))
    assert "PRIVATE" not in (node / "request.toml").read_text()
    assert keys.read_request(node / "request.toml", spoken(consortium / "ca.crt")) == request


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen on this machine")
def test_openssh_reads_the_key_and_finds_the_same_fingerprint(node, tmp_path):
    request = keys.make_key(node)
    ran = lambda *words: subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert ran("ssh-keygen", "-y", "-f", str(node / "node.key")).split()[:2] == request.public_key.split()
    (tmp_path / "key.pub").write_text(request.public_key)
    import base64

    printed = ran("ssh-keygen", "-l", "-f", str(tmp_path / "key.pub")).split()[1].removeprefix("SHA256:")
    assert base64.b64decode(printed + "=").hex().startswith(keys.fingerprint(request.public_key).replace(" ", ""))


def test_a_key_is_not_made_twice(node):
    keys.make_key(node)
    before = (node / "node.key").read_bytes()
    with pytest.raises(UserError, match="node.key exists and is not made anew"):
        keys.make_key(node)
    assert (node / "node.key").read_bytes() == before


def test_after_a_crash_between_request_and_key_both_are_made_anew(node, consortium, monkeypatch):
    write = files.atomic_write

    def crash(path: Path, *rest):
        if path.name == "node.key":
            raise KeyboardInterrupt
        write(path, *rest)

    monkeypatch.setattr(keys, "atomic_write", crash)
    with pytest.raises(KeyboardInterrupt):
        keys.make_key(node)
    monkeypatch.undo()
    request = keys.make_key(node)
    assert keys.read_request(node / "request.toml", spoken(consortium / "ca.crt")) == request


@pytest.mark.parametrize(
    "break_it, said",
    [
        (lambda f: shutil.rmtree(f), "is no folder of a node"),
        (lambda f: (f / "node.toml").write_text("server = 'a:1'"), "node.toml has no name"),
        (lambda f: (f / "node.toml").write_text("name = 3"), "node.toml has no name"),
        (lambda f: (f / "node.toml").write_text("name = '../x'"), "is no name for a node"),
        (lambda f: (f / "node.toml").write_text("="), "is no TOML file"),
        (lambda f: (f / "ca.crt").unlink(), "ca.crt cannot be read"),
        (lambda f: (f / "ca.crt").write_text("no"), "ca.crt is no certificate"),
    ],
)
def test_a_folder_that_is_no_nodes_is_refused_and_no_key_is_left(node, break_it, said):
    break_it(node)
    with pytest.raises(UserError, match=said):
        keys.make_key(node)
    assert not (node / "node.key").exists()


def changed(node: Path, **fields: object) -> Path:
    """The request of a fresh key, with these fields instead of its own."""
    keys.make_key(node)
    table = read_toml(node / "request.toml") | fields
    (node / "request.toml").write_text(tomli_w.dumps({k: v for k, v in table.items() if v is not None}))
    return node / "request.toml"


OTHER = keys.public(ec.generate_private_key(ec.SECP384R1()).public_key())
WEAK = keys.public(ec.generate_private_key(ec.SECP256R1()).public_key())


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"name": "south"}, "its key did not sign it"),
        ({"public_key": OTHER}, "its key did not sign it"),
        ({"public_key": OTHER, "fingerprint": keys.fingerprint(OTHER)}, "its key did not sign it"),
        ({"fingerprint": "0000 0000 0000 0000 0000 0000 0000 0000"}, "its key did not sign it"),
        ({"authority": "0000 0000 0000 0000 0000 0000 0000 0000"}, "its key did not sign it"),
        ({"signature": ""}, "its key did not sign it"),
        ({"signature": "no base 64!"}, "its key did not sign it"),
        ({"public_key": WEAK, "fingerprint": keys.fingerprint(WEAK)}, "no public key of the curve P-384"),
        ({"public_key": "ssh-rsa AAAA"}, "no public key of the curve P-384"),
        ({"public_key": ""}, "no public key of the curve P-384"),
        ({"name": "../south"}, "is no name for a node"),
        ({"name": 3}, "it lacks name"),
        ({"name": None, "signature": None}, "it lacks name, signature"),
    ],
)
def test_a_request_that_was_changed_is_refused(node, consortium, fields, said):
    path = changed(node, **fields)
    with pytest.raises(UserError, match=said):
        keys.read_request(path, spoken(consortium / "ca.crt"))


def test_a_request_to_another_consortium_is_refused(node, tmp_path):
    keys.make_key(node)
    with pytest.raises(UserError, match="is a request to the consortium with the authority"):
        keys.read_request(node / "request.toml", spoken(made(tmp_path / "other") / "ca.crt"))


@pytest.mark.parametrize("text, said", [(b"\xff", "is no TOML file"), (b"a" * 20_000, "more than 10,000 bytes")])
def test_a_file_that_is_no_request_is_refused(tmp_path, text, said):
    (tmp_path / "request.toml").write_bytes(text)
    with pytest.raises(UserError, match=said):
        keys.read_request(tmp_path / "request.toml", "")
    with pytest.raises(UserError, match="cannot be read"):
        keys.read_request(tmp_path, "")
    with pytest.raises(UserError, match="cannot be read"):
        keys.read_request(tmp_path / "none", "")
