"""Certificates: what a client of TLS makes of them, when they end, and files that do not belong together."""

from __future__ import annotations

import datetime as dt
import shutil
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from support.consortia import NOW, made

from apiece import UserError
from apiece.consortium import certificates
from apiece.consortium.folder import renew
from apiece.consortium.private import load

HOST = "fl.example.org"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("made") / "consortium")


@pytest.fixture
def consortium(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "consortium"))


def called(folder: Path, host: str, authority: Path) -> str:
    """Call the server of a folder by this name, with this authority: the protocol, or what the client refuses."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server" / "server.pem", folder / "server" / "server.key")
    client = ssl.create_default_context(cafile=str(authority))
    here, there = socket.socketpair()
    here.settimeout(10)
    there.settimeout(10)

    def serve() -> None:
        try:
            server.wrap_socket(there, server_side=True).close()
        except (ssl.SSLError, OSError):
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(here, server_hostname=host) as connected:
            return str(connected.version())
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    finally:
        here.close()
        thread.join()


def fresh(tmp_path: Path) -> Path:
    """A consortium whose certificates are valid today, as a handshake has no other clock."""
    from apiece.consortium import folder, naming

    folder.make(tmp_path / "now", ("north",), naming.server(f"{HOST}:8443"), dt.datetime.now(dt.UTC))
    return tmp_path / "now"


def test_a_client_that_trusts_the_authority_knows_the_server_by_its_names_alone(tmp_path):
    folder = fresh(tmp_path)
    for host in (HOST, "localhost", "127.0.0.1"):
        assert called(folder, host, folder / "ca.crt") == "TLSv1.3"
    assert "not valid for 'other.example.org'" in called(folder, "other.example.org", folder / "ca.crt")
    other = made(tmp_path / "other")
    assert "unable to get local issuer" in called(folder, HOST, other / "ca.crt")


def test_private_keys_are_for_their_owner_alone(consortium):
    for path in (consortium / "ca.key", consortium / "server" / "server.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o604)
        with pytest.raises(UserError, match="can be read by everyone on this machine: chmod 600"):
            load(path)
        path.chmod(0o640)  # a group, as a secret of Kubernetes has one
        load(path)


def test_what_is_made_is_found_good_until_it_ends(consortium):
    validity = certificates.checked(consortium, HOST, NOW)
    assert (validity.server - NOW).days == 365 and (validity.authority - NOW).days == 3650
    day = dt.timedelta(days=1)
    assert certificates.checked(consortium, "127.0.0.1", validity.server - day) == validity
    assert certificates.warned(consortium, validity, NOW) == ""
    said = certificates.warned(consortium, validity, validity.server - 29 * day)
    assert said == f"the server's certificate ends on 2027-11-25: `apiece deploy renew {consortium}`"
    assert "the authority ends on 2036-11-22" in certificates.warned(consortium, validity._replace(
        server=validity.authority), validity.authority - day)  # fmt: skip
    with pytest.raises(UserError, match="the server's certificate ended on 2027-11-25: `apiece deploy renew"):
        certificates.checked(consortium, HOST, validity.server)
    with pytest.raises(UserError, match="the authority ended on 2036-11-22: make a new consortium"):
        certificates.checked(consortium, HOST, validity.authority)
    with pytest.raises(UserError, match="valid from 2026-11-25 on: set the clock"):
        certificates.checked(consortium, HOST, NOW - day)


def test_another_host_is_named(consortium):
    with pytest.raises(UserError, match="is for fl.example.org, localhost, 127.0.0.1, and not for fl.example.com"):
        certificates.checked(consortium, "fl.example.com", NOW)


def test_renewal_keeps_the_key_and_what_nodes_hold(consortium):
    before = {path: path.read_bytes() for path in consortium.rglob("*") if path.is_file()}
    later = NOW + dt.timedelta(days=400)
    assert (renew(consortium, later).server - later).days == 365
    changed = {path for path, text in before.items() if path.read_bytes() != text}
    assert changed == {consortium / "server" / "server.pem"}
    assert certificates.checked(consortium, HOST, later)


def test_a_renewed_certificate_ends_with_its_authority(consortium):
    end = certificates.checked(consortium, HOST, NOW).authority
    assert renew(consortium, end - dt.timedelta(days=100)).server == end
    with pytest.raises(UserError, match="the authority ended on .* make a new consortium and new keys"):
        renew(consortium, end)


def test_a_lost_key_of_the_server_is_made_anew(consortium):
    (consortium / "server" / "server.key").unlink()
    with pytest.raises(UserError, match="server.key cannot be read"):
        certificates.checked(consortium, HOST, NOW)
    assert renew(consortium, NOW) and load(consortium / "server" / "server.key")


def test_files_that_do_not_belong_together_are_named(consortium, tmp_path):
    other = made(tmp_path / "other")
    shutil.copy(other / "server" / "server.key", consortium / "server")
    with pytest.raises(UserError, match="server.pem is not of the key server.key"):
        certificates.checked(consortium, HOST, NOW)
    shutil.copy(other / "server" / "server.pem", consortium / "server")
    with pytest.raises(UserError, match="server.pem is not of the authority ca.crt"):
        certificates.checked(consortium, HOST, NOW)
    shutil.copy(other / "ca.key", consortium)
    with pytest.raises(UserError, match="ca.key is not the key of ca.crt"):
        renew(consortium, NOW)
    (consortium / "ca.key").unlink()  # it is kept off the server's machine
    with pytest.raises(UserError, match="ca.key is missing, which signs certificates: bring it from where it is kept."):
        renew(consortium, NOW)


@pytest.mark.parametrize("file", ["ca.crt", "server/server.pem"])
@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_damaged_certificate_is_named(consortium, file, text):
    (consortium / file).write_bytes(text)
    with pytest.raises(UserError, match=f"{file} is no certificate"):
        certificates.checked(consortium, HOST, NOW)
    (consortium / file).unlink()
    with pytest.raises(UserError, match=f"{file} cannot be read .No such file"):
        certificates.checked(consortium, HOST, NOW)


def pem(key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    "text, said",
    [
        (b"", "is no private key"),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", "is no private key"),
        (pem(ec.generate_private_key(ec.SECP256R1()))[:-60], "is no private key"),
        (pem(rsa.generate_private_key(65537, 2048)), "is a key of another kind"),
    ],
    ids=["empty", "cut short", "damaged", "of another kind"],
)
def test_a_damaged_key_is_named(consortium, text, said):
    (consortium / "ca.key").write_bytes(text)
    with pytest.raises(UserError, match=f"ca.key {said}"):
        renew(consortium, NOW)
