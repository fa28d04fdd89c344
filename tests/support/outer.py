"""The command line in this process, and the smallest runs that mean something."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import safetensors.numpy

from apiece.cli import main
from apiece.config.settings import Config
from apiece.report import page

TINY: dict[str, Any] = {"clients": 6, "rounds": 3, "steps": "2", "batch": 8, "model": "softmax_regression",
    "split": "iid"}  # fmt: skip


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def cli(*words: object) -> Ended:
    """Run `apiece` with these words; anything but SystemExit comes through as the traceback it would be."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            code = int(end.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())


def run(*flags: object, **settings: Any) -> Ended:
    """`apiece run` of the smallest run, with these settings over it."""
    words = [word for key, value in (TINY | settings).items() for word in (f"--{key.replace('_', '-')}", value)]
    return cli("run", *words, *flags)


def config(**settings: Any) -> Config:
    """The smallest run as a value."""
    return Config(**(TINY | settings))


def draw_no_page_of_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are left without a page of their own, which takes longer than they do; a page of several is drawn."""
    draw = page.write_report

    def drawn(runs: Any, out: Any, *rest: Any) -> Path:
        return Path(out) if (Path(out) / "metrics.jsonl").is_file() else draw(runs, out, *rest)

    monkeypatch.setattr(page, "write_report", drawn)


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The log of a run."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def sentence(ended: Ended, *said: str) -> str:
    """The one sentence a command ended with, which says all of this."""
    assert ended.code == 2, ended
    assert ended.err.startswith("apiece: ") and ended.err.count("\n") == 1 and ended.err.endswith(".\n"), ended.err
    for text in said:
        assert text in ended.err, (text, ended.err)
    return ended.err


DIVERGES = {"algorithm": "relaxed_init(beta=50)", "rounds": 30, "lr": 0.5}


def content(folder: Path) -> dict[str, object]:
    """Everything that a folder holds; of checkpoints the tensors, as their headers are in no order."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        str(path): safetensors.numpy.load_file(path).__repr__() if path.suffix == ".safetensors" else path.read_bytes()
        for path in files
    }


def cells(out: Path) -> list[list[str]]:
    """The table of grid.md, without its headings."""
    lines = [line for line in (out / "grid.md").read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip().strip("*") for cell in line.strip("| ").split(" | ")] for line in lines[1:]]
