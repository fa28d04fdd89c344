"""Names of nodes and addresses of servers: what is taken, and what is refused in one sentence."""

from __future__ import annotations

import pytest

from apiece import UserError
from apiece.consortium import naming


@pytest.mark.parametrize(
    "text, host, port",
    [
        ("fl.example.org:8443", "fl.example.org", 8443),
        ("FL.Example.org:1", "fl.example.org", 1),
        ("localhost:65535", "localhost", 65535),
        ("10.0.0.1:8443", "10.0.0.1", 8443),
        ("[::1]:8443", "::1", 8443),
    ],
)
def test_an_address_is_read_and_written_back(text, host, port):
    assert naming.server(text) == (host, port)
    assert str(naming.server(text)) == text.lower()


BAD = ["", "host", ":8443", "host:", "host:0", "host:65536", "host:-1", "host:8e3", "host:٣", "::1:8443",
       "[10.0.0.1]:80", "0.0.0.0:80", "[::]:80", "224.0.0.1:80", "a b:80", "https://host:80", "host/v1:80",
       "*.example.org:80", "-a.org:80", "a..org:80", "1.2.3:80", "ümlaut.org:80", "user@host:80", "a\nb:80",
       f"{'a.' * 130}org:80", "host;:80", "localhost:000001234567", "host:08443"]  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(UserError, match="--server") as refused:
        naming.server(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize("text", ["", "North", "a_b", "-a", "a-", "a.b", "..", "a/b", "a b", "é", "a" * 64, "north,"])
def test_what_is_no_name_is_refused(text):
    with pytest.raises(UserError, match="is no name for a node"):
        naming.nodes(f"{text},south")


def test_a_name_stands_once():
    assert naming.nodes("a,b-1, c") == ("a", "b-1", "c")
    with pytest.raises(UserError, match="--nodes names a, b more than once"):
        naming.nodes("a,b,c,b,a")
