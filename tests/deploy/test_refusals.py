"""A node's log says who must act when its SuperNode ends; the texts are those of flwr 1.42."""

from __future__ import annotations

import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import pytest

pytest.importorskip("cryptography")

from support.consortia import made

from apiece.consortium.keys import make_key
from apiece.deploy import refusals
from apiece.deploy.joining import node_of
from apiece.deploy.refusals import clock_ahead, why_ended
from apiece.errors import UserError

UNTRUSTED = """Exit Code: 305
Failed to initialize the connection to the SuperLink.
[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate (_ssl.c:1006)
"""
OTHER_NAME = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: Hostname mismatch, x (_ssl.c:1006)"
UNKNOWN = "Exit Code: 305\n[code: 2004] Failed to activate SuperNode."


def said(written: str, off: float | None, monkeypatch) -> str:
    monkeypatch.setattr(refusals, "clock_ahead", lambda server, ca: off)
    return why_ended(written, "fl.example.org:8443", Path("ca.crt"))


@pytest.mark.parametrize(
    "written, off, expected",
    [
        (UNTRUSTED, 0.0, "is not trusted (unable to get local issuer certificate), and was sent nothing: the coord"),
        (OTHER_NAME, 0.0, "is not trusted (Hostname mismatch, x), and was sent nothing: the coordinator must say"),
        (UNKNOWN, 0.0, "does not let this node in: the coordinator must admit its key by `apiece deploy admit`"),
        ("", 86_400.2, "this machine's clock is 86,400 seconds ahead of the server's: set the one that is wrong."),
        ("", -86_400.2, "this machine's clock is 86,400 seconds behind the server's: set the one that is wrong."),
    ],
)
def test_who_must_act_is_said(written, off, expected, monkeypatch):
    assert expected in said(written, off, monkeypatch)


@pytest.mark.parametrize("off", [None, 0.0, 4.0, -300.0])
def test_nothing_is_said_where_nothing_is_known(off, monkeypatch):
    assert said("", off, monkeypatch) == ""


class Clock(BaseHTTPRequestHandler):
    """Says only what time it is: a day less than here."""

    def do_HEAD(self) -> None:
        self.send_response_only(403)
        self.send_header("Date", formatdate(time.time() - 86_400, usegmt=True))
        self.end_headers()


@pytest.fixture
def server(tmp_path):
    consortium = made(tmp_path / "consortium", at="localhost:8443")
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(consortium / "server" / "server.pem", consortium / "server" / "server.key")
    with HTTPServer(("127.0.0.1", 0), Clock) as listening:
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield consortium, listening.server_port
        listening.shutdown()
        thread.join()


def test_the_server_is_asked_for_its_time_and_only_if_it_is_trusted(server, tmp_path, monkeypatch):
    consortium, port = server
    other = made(tmp_path / "other")
    monkeypatch.setattr(refusals.ssl, "create_default_context", at_the_moment_of_the_certificate)
    assert clock_ahead(f"localhost:{port}", consortium / "ca.crt") == pytest.approx(86_400, abs=5)
    assert clock_ahead(f"localhost:{port}", other / "ca.crt") is None
    assert clock_ahead("localhost:1", consortium / "ca.crt") is None


@pytest.mark.parametrize("text", [None, "", "no certificate"])
def test_an_authority_that_cannot_be_read_is_refused_at_joining_and_ends_no_node(tmp_path, text):
    consortium = made(tmp_path / "consortium")
    ca = consortium / "nodes" / "north" / "ca.crt"
    make_key(ca.parent)
    ca.unlink() if text is None else ca.write_text(text)
    assert why_ended("", "localhost:1", ca) == ""
    with pytest.raises(UserError, match="ca.crt is (missing: ask|no certificate: restore)"):
        node_of(ca.parent)


def at_the_moment_of_the_certificate(cafile):
    """A context as the standard one, which does not look at the time: the consortia of tests are of a fixed day."""
    from ssl import PROTOCOL_TLS_CLIENT, VerifyFlags

    context = SSLContext(PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile)
    context.verify_flags |= VerifyFlags(0x200000)  # X509_V_FLAG_NO_CHECK_TIME
    return context
