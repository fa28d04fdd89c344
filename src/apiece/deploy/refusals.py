"""Why a node's SuperNode ended, in a sentence that says who must act: Flower says it in many lines, or not at all."""

from __future__ import annotations

import http.client
import re
import ssl
import time
from email.utils import parsedate_to_datetime
from pathlib import Path

from apiece.consortium import naming

AHEAD, BEHIND = 5, 305  # seconds by which Flower lets a node's clock be wrong
UNTRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED\] certificate verify failed: ([^(\n]+)")
UNKNOWN = "[code: 2004]"


def why_ended(written: str, server: str, ca: Path) -> str:
    """Why a SuperNode ended that wrote this; nothing where that cannot be known."""
    if found := UNTRUSTED.search(written):
        return (
            f"the server at {server} is not trusted ({found[1].strip()}), and was sent nothing: the coordinator must "
            "say whether that is its address, and whether `apiece deploy renew` is due."
        )
    if UNKNOWN in written:
        return (
            f"the server at {server} does not let this node in: the coordinator must admit its key by `apiece deploy "
            "admit`; if that was done, an earlier session of this node ends within a minute."
        )
    off = clock_ahead(server, ca)
    if off is not None and not -BEHIND < off < AHEAD:
        wrong = f"{abs(off):,.0f} seconds {'ahead of' if off > 0 else 'behind'}"
        return (
            f"the server at {server} does not let this node in, because this machine's clock is {wrong} the server's: "
            "set the one that is wrong."
        )
    return ""


def clock_ahead(server: str, ca: Path) -> float | None:
    """By how many seconds this machine's clock is ahead of a server's; None if the server does not say its time."""
    host, port = naming.server(server)
    try:
        trusted = ssl.create_default_context(cafile=ca)
    except OSError:  # the file is gone meanwhile, or no certificate any more
        return None
    connection = http.client.HTTPSConnection(host, port, timeout=10, context=trusted)
    try:
        connection.request("HEAD", "/v1/fleet")
        told = connection.getresponse().headers["date"]
        return time.time() - parsedate_to_datetime(told).timestamp()
    except (OSError, http.client.HTTPException, TypeError, ValueError, OverflowError):
        return None
    finally:
        connection.close()
