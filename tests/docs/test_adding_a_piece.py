"""docs/adding-a-piece.md does what it says: its file, its commands, its Python, its entry point."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import ROOT
from support.helpers import FullBatch, federate, federation, gap
from support.helpers import run as rounds
from support.outer import cli
from torch import nn

from apiece import Piece, View, check
from apiece.algebra.message import Sum
from apiece.language.algorithms import scaffold
from apiece.lifts.lift import Sequential, Vectorized

PAGE = (ROOT / "docs" / "adding-a-piece.md").read_text()
OWN_SAMPLES = re.findall(r"\n```\n((?:x, y|losses) = .*?)```", PAGE, re.S)  # in a slot, of a client's samples
FILE, *SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.S)
(PROJECT,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
CONTRACT, *CONSOLES = re.findall(r"```console\n(.*?)```", PAGE, re.S)
USED, INSTALLED = CONSOLES[:-1], CONSOLES[-1]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the page's file, where commands run; that it was imported is forgotten afterwards."""
    (tmp_path / "centered.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("centered", None)


@pytest.fixture
def centered(here: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The page's file as a module."""
    monkeypatch.syspath_prepend(str(here))
    import centered  # pyright: ignore

    return centered


def shape(text: str) -> list[str]:
    """A command's output without its numbers: the words and marks of every line that has some."""
    words = [re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", line).split() for line in text.splitlines()]
    return [re.sub(r"([─━])+", r"\1", " ".join(line)) for line in words if line]


def shown(console: str) -> list[tuple[list[str], str]]:
    """(a command's words, its output as the page shows it), for every command of a block."""
    parts = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", console, re.M)
    return [(shlex.split(command), output) for command, output in parts]


def fits(actual: str, page: str) -> bool:
    """Whether an output is of the shape shown, where a line of dots stands for any number of lines."""
    pattern = "\n".join(".*" if line == "..." else re.escape(line) for line in shape(page))
    return re.fullmatch(pattern, "\n".join(shape(actual)), re.S) is not None


def test_the_comparison_can_fail():
    page = "name   %\n ───\n a   0.5 kB\n"
    assert fits("name %\n──────\na 12 kB\n\n", page) and fits("x\ny\nz", "x\n...\nz")
    assert not any(fits(other, page) for other in ("name %\n───\nb 1 kB", "name %\n───", "name\n───\na 1 kB"))


def test_the_file_has_at_most_forty_lines():
    assert 20 < len(FILE.splitlines()) <= 40 and len(SNIPPETS) == 2 and len(CONSOLES) == 2


@pytest.mark.slow
def test_the_piece_passes_the_contract_and_says_what_the_page_shows(centered, capsys):
    ((words, output),) = shown(CONTRACT)
    assert words[:2] == ["python", "-c"]
    exec(words[2], {})
    assert fits(capsys.readouterr().out, output)
    check(scaffold() + centered.centered(0.3))


class Net(nn.Module):
    """A convolution, a frozen layer and a head that is used twice: all that a vector's layout has to get right."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fixed = nn.Conv2d(1, 3, (2, 3)), nn.Linear(9, 9)
        self.fixed.requires_grad_(False)
        self.middle, self.head = nn.Linear(9, 9), nn.Linear(9, 4)
        self.again = self.middle

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.conv(x).flatten(1)
        return self.head(torch.tanh(self.again(torch.tanh(self.middle(self.fixed(z))))))


# strengths catch a factor forgotten where it is 1, lifts a mean over the axis of clients
@pytest.mark.parametrize("lift", [Sequential(), Vectorized(2)], ids=["sequential", "vectorized"])
@pytest.mark.parametrize("strength", [1.0, 0.3])
def test_a_step_is_the_equation(centered, strength, lift):
    """Yong et al. 2020, (1), in NumPy on autograd's gradient of the module itself: one client, one step."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = Net().double()
    rng = np.random.Generator(np.random.Philox(1))
    x, y = rng.normal(size=(10, 1, 4, 3)), rng.integers(0, 4, 10)
    federated = federate(centered.centered(strength), module)
    clients = federation([x, x], [y, y])
    after = rounds(federated, clients, FullBatch(1), [[0, 1]], 0.1, lift).last
    moved = federated.setup.task.space.state_dict(after)
    nn.functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y)).backward()
    for name, parameter in module.named_parameters():
        g = np.zeros(tuple(parameter.shape)) if parameter.grad is None else parameter.grad.numpy()
        if g.ndim > 1:
            means = np.array([column.mean() for column in g.reshape(len(g), -1)])
            g = g - strength * means.reshape(-1, *[1] * (g.ndim - 1))
        assert gap(moved[name], parameter.detach().numpy() - 0.1 * g) < 1e-14, name


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(USED)))
def test_the_commands_print_what_the_page_shows(here, number):
    for words, output in shown(USED[number]):
        assert words[0] == "apiece"
        ended = cli(*words[1:])
        assert ended.code == 0, ended.err
        assert fits(ended.out, output), f"{' '.join(words)} printed\n{ended.out}\nand the page shows\n{output}"


@pytest.mark.slow
@pytest.mark.parametrize("snippet", SNIPPETS, ids=["a report", "a run"])
def test_the_python_runs_as_it_stands(centered, snippet):
    exec(compile(snippet, "docs/adding-a-piece.md", "exec"), {"__name__": "__main__"})


@pytest.mark.slow
def test_the_entry_point_of_the_page(here, monkeypatch):
    """What `pip install .` would put on the path: the modules and the distribution's metadata."""
    project = tomllib.loads(PROJECT)
    about, site = project["project"], here / "site"
    folder = site / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    folder.mkdir(parents=True)
    for module in project["tool"]["setuptools"]["py-modules"]:
        shutil.move(here / f"{module}.py", site)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n")
    ((group, points),) = about["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    ((words, output),) = shown(INSTALLED)
    assert cli(*words[1:]).code == 2  # not installed yet
    monkeypatch.syspath_prepend(str(site))
    ended = cli(*words[1:], "--out", here / "run")
    assert ended.code == 0 and fits(ended.out, output), ended.err or ended.out
    recorded = tomllib.loads((here / "run" / "run.toml").read_text())
    assert recorded["versions"][about["name"]] == about["version"] and "plugin" not in recorded["config"]
    last = cli("algorithms").out.splitlines()[-1]
    assert last.startswith("centered(strength=1.0)") and last.endswith("(Yong et al. 2020).")


class OwnSamples(Piece):
    """Reports what the page computes of the client's own samples, and the server keeps its sum."""

    @classmethod
    def neutral(cls):
        return "what it reports has no size"

    def server_memory(self, theta):
        return theta.new_zeros(2)

    def report(self, view):
        names = {"view": view, "torch": torch, "F": torch.nn.functional, "theta": view.end}
        for block in OWN_SAMPLES:
            exec(compile(block, "docs/adding-a-piece.md", "exec"), names)
        found = [torch.where(torch.as_tensor(view.data.size > 0), names[name], 0.0) for name in ("mean", "loss")]
        return Sum(torch.stack(found).to(view.sent.dtype))

    def learn(self, memory, g, report, share):
        return g, memory + report.x


def test_what_counts_the_clients_own_samples_alone_keeps_the_laws():
    assert [len(block.splitlines()) for block in OWN_SAMPLES] == [3, 2]
    assert check(OwnSamples()).vectorized < 1e-12


def test_the_table_of_the_view_has_all_that_it_has():
    table = PAGE[PAGE.index("| `view.`") : PAGE.index("### The client's samples")]
    named = set(re.findall(r"`(\w+)(?:\(\))?`", "".join(line.split("|")[1] for line in table.splitlines()[2:] if line)))
    assert named == {*View._fields, "with_own"}


def test_a_name_that_a_view_lacks_gets_the_names_that_it_has(here):
    (here / "lacking.py").write_text(FILE.replace("view.task.by_tensor", "view.rounds.by_tensor"))
    ended = cli("run", "--plugin", "lacking.py", "--algorithm", "centered", "--rounds", "1", "--out", "a")
    said = " ".join(ended.err.split())
    assert "'View' object has no attribute 'rounds'; did you mean 'round'? A view has sent, model, start" in said
