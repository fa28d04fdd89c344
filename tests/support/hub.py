"""A hub of data sets on this machine, spoken to over HTTP by the same library that speaks to the real one."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

COMMIT = "1" * 40
FILE = re.compile(r"/datasets/([^/]+/[^/]+)/resolve/[^/]+/(.+)")
ABOUT = re.compile(r"/api/datasets/([^/]+/[^/]+)(?:/revision/[^/]+)?")
TREE = re.compile(r"/api/datasets/([^/]+/[^/]+)/tree/[^/]+/?(.*)")


def publish(root: Path, name: str, parts: dict[str, int], columns: dict[str, Any], size: tuple, folder="data") -> None:
    """Lay a data set of noise down as the hub has it: a card that names its parts, and a parquet file a part.

    `columns` are what stands beside the image, by name; the first is the image's own name.
    """
    import datasets
    from PIL import Image

    (image, *_), rng = columns, np.random.default_rng(0)
    (root / name / folder).mkdir(parents=True)
    card = f"---\nconfigs:\n- config_name: {folder if folder != 'data' else 'default'}\n  data_files:\n"
    for part, count in parts.items():
        pixels = rng.integers(0, 255, (count, *size), dtype=np.uint8)
        rows: dict[str, Any] = {image: [Image.fromarray(x) for x in pixels]}
        for column, kind in list(columns.items())[1:]:
            classes = isinstance(kind, datasets.ClassLabel)
            rows[column] = [i % kind.num_classes if classes else f"f{i % 7:04d}" for i in range(count)]
        told = datasets.Dataset.from_dict(rows, features=datasets.Features(columns))
        told.to_parquet(root / name / folder / f"{part}-00000-of-00001.parquet")
        card += f"  - split: {part}\n    path: {folder}/{part}-*\n"
    (root / name / "README.md").write_text(card + "---\n")


@contextmanager
def serving(root: Path, breaks: str = "never") -> Iterator[str]:
    """The address of a hub of what lies in this folder; files whose names end in `breaks` break off."""

    class Hub(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def answer(self, code: int, body: bytes, sent: int | None = None) -> None:
            self.send_response(code)
            self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(body)))
            if code == 404:
                self.send_header("X-Error-Code", "EntryNotFound")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body[:sent])

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if (of := FILE.fullmatch(path)) and (file := root / of[1] / of[2]).is_file():
                return self.answer(200, file.read_bytes(), 100 if file.name.endswith(breaks) else None)
            if (of := ABOUT.fullmatch(path)) and (root / of[1]).is_dir():
                about = {"id": of[1], "sha": COMMIT, "private": False, "tags": [], "downloads": 0, "likes": 0}
                return self.answer(200, json.dumps(about | {"siblings": []}).encode())
            if (of := TREE.fullmatch(path)) and (folder := root / of[1] / of[2]).is_dir():
                return self.answer(200, json.dumps([entry(root / of[1], file) for file in folder.iterdir()]).encode())
            return self.answer(404, b"{}")

        do_HEAD = do_GET  # noqa: N815 - the name that the library calls

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def entry(repository: Path, file: Path) -> dict[str, Any]:
    kind, size = ("file", file.stat().st_size) if file.is_file() else ("directory", 0)
    return {"type": kind, "oid": COMMIT, "size": size, "path": str(file.relative_to(repository))}
