"""Algorithms from outside the package: files and entry points are found, recorded, found again, or refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.outer import TINY, cli, config, run

from apiece.config.assemble import chosen_algorithm
from apiece.config.settings import Config
from apiece.config.tables import from_toml, to_table
from apiece.errors import UserError
from apiece.experiment.exporting import export
from apiece.experiment.identity import digest
from apiece.experiment.launch import federate, resume
from apiece.experiment.personalize import personalize
from apiece.language import plugins
from apiece.system import provenance

LIGHT = '''"""An algorithm of one's own, whose module loads nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apiece import Algorithm


def slowly(factor: float = 0.5, within: Algorithm | None = None) -> Algorithm:
    """Every gradient times `factor` (Nobody 2024).

    More."""
    from apiece import algorithm

    made = algorithm(_piece()(factor), name=f"slowly({factor:g})")
    return made if within is None else within + made


@cache
def _piece():
    from apiece import Piece

    @dataclass(frozen=True)
    class Slowly(Piece):
        factor: float

        def correct(self, view):
            return (), lambda scratch, g, theta, batch: (scratch, self.factor * g)

    return Slowly
'''
MAKES = "from apiece import algorithm\ndef mine():\n    return algorithm(name='mine')\n"


@pytest.fixture
def slowly(tmp_path: Path) -> Path:
    (tmp_path / "slowly.py").write_text(LIGHT)
    return tmp_path / "slowly.py"


def install(site: Path, name: str, point: str, module: str = "") -> None:
    """What an installed distribution leaves: its metadata, with one entry point, and its module."""
    folder = site / f"{name}-1.2.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (folder / "entry_points.txt").write_text(f"[{provenance.GROUP}]\n{point}\n")
    (site / f"{name}.py").write_text(module)


def sentence(ended, *parts: str) -> None:
    assert ended.code == 2 and "Traceback" not in ended.err and len(ended.err.splitlines()) == 1, ended.err
    assert all(part in ended.err for part in parts), ended.err


# --- files ----------------------------------------------------------------------------------------------------------
BAD = {
    "a plugin with an error in its second line": ("x = 1\nx.y\n", "line 2: AttributeError: 'int' object has no"),
    "an error below": ("def f():\n    raise KeyError('k')\n\nf()\n", "line 2: KeyError: 'k'"),
    "a module that is not there": ("import nowhere.at_all\n", "line 1: ModuleNotFoundError: No module named 'nowhere'"),
    "a syntax error": ("def (:\n", "line 1: SyntaxError: invalid syntax"),
    "one that ends the program": ("import sys\nsys.exit(3)\n", "line 2: SystemExit: 3"),
    "no text at all": ("\0", "cannot be loaded: "),
    "nothing in it": ("", "has no public function that makes an algorithm"),
    "only what is private or another's": (
        "from apiece import algorithm\ndef _mine():\n    return algorithm(name='mine')\nclass Mine: ...\n",
        "has no public function that makes an algorithm",
    ),
    "a built-in name": ("def relaxed_init(): ...\n", "defines 'relaxed_init', the name of a built-in algorithm"),
}


@pytest.mark.parametrize("content, told", BAD.values(), ids=BAD)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(tmp_path, content, told):
    path = tmp_path / "bad.py"
    path.write_text(content)
    for _ in range(2):  # the second time as well
        sentence(cli("algorithms", "--plugin", path), f"the plugin {path} ", told)
    sentence(run(plugin=path), f"the plugin {path} ", told)
    with pytest.raises(UserError, match="bad.py"):
        federate(plugin=str(path))


MADE = {
    "no algorithm": ("def mine():\n    return 3\n", "mine", "gave a value of type int, no Algorithm"),
    "a failing constructor": ("def mine(x: int):\n    return 1 // x\n", "mine(0)", "line 2: ZeroDivisionError"),
    "an argument that it has not": (MAKES, "mine(3)", "write mine()"),
    "its own refusal": (
        "from apiece import UserError\ndef mine():\n    raise UserError('not today.')\n",
        "mine",
        "mine: not today.",
    ),
}


@pytest.mark.parametrize("content, text, told", MADE.values(), ids=MADE)
def test_what_a_constructor_does_wrong_is_said_in_one_sentence(tmp_path, content, text, told):
    (tmp_path / "mine.py").write_text(content)
    sentence(run(plugin=tmp_path / "mine.py", algorithm=text), told)


SLOT = """import dataclasses; from apiece import PerClient, Piece, algorithm

class Mine(Piece):
    def {slot}:
        return {returned}

def mine():
    return algorithm(Mine(), name="mine")
"""
BATCH = "lambda theta, batch: loss(theta, batch) + batch[0].nonsense"
RUNS = {
    "a loss of a slot": ("objective(self, view, loss)", BATCH, "fails: line 5: AttributeError: 'Tensor'"),
    "a wrong return": ("learn(self, memory, g, report, share)", "2 * g", ": Mine.learn returned a tensor of"),
    "other parameters": ("learn(self, memory, g)", "g, memory", "loaded: line 3: Mine.learn takes (self, mem"),
    "parts of a model": ("keep(self, view, theta)", "theta.state_dict()", "fails: line 5: AttributeError: 'Tensor'"),
    "steps of a descent": ("keep(self, view, theta)", "view.descend(theta, steps=5)", "view.descend takes start, o"),
    "a copy of a message": ("upload(self, view, message)", "dataclasses.replace(message)", "message._replace(delta="),
    "a mark": ("learn(self, memory, g, report, share)", "PerClient(g).norm(), memory", "its tensor is .x, as in"),
    "a name that is not there": ("keep(self, view, theta)", "theta + mean", "fails: line 5: NameError: name"),
    "a shape that does not fit": ("keep(self, view, theta)", "theta + view.data.pool[0]", "fails: line 5: RuntimeE"),
}


@pytest.mark.parametrize("slot, returned, told", RUNS.values(), ids=RUNS)
def test_what_a_piece_does_wrong_is_said_in_one_sentence(tmp_path, slot, returned, told):
    (tmp_path / "mine.py").write_text(SLOT.format(slot=slot, returned=returned))
    ended = run(plugin=tmp_path / "mine.py", algorithm="mine", lift="sequential")
    sentence(ended, told)
    if "fails: line" in told:
        sentence(ended, f"apiece: Mine.{slot.partition('(')[0]} of the plugin {tmp_path / 'mine.py'} {told}")


def test_files_that_are_not_there(tmp_path):
    sentence(cli("algorithms", "--plugin", tmp_path / "no.py"), "no.py cannot be read (No such file", "give the path")
    sentence(run(plugin=tmp_path), "cannot be read (Is a directory)")


def test_two_files(slowly, tmp_path):
    (tmp_path / "mine.py").write_text(MAKES)
    listed = json.loads(cli("algorithms", "--json", "--plugin", slowly, tmp_path / "mine.py").out)
    assert [entry["name"] for entry in listed][-2:] == ["slowly", "mine"]
    (tmp_path / "again.py").write_text(MAKES)
    both = cli("algorithms", "--plugin", tmp_path / "mine.py", tmp_path / "again.py")
    sentence(both, f"the plugin {tmp_path / 'again.py'} defines 'mine'", f"of the plugin {tmp_path / 'mine.py'}")


@pytest.mark.parametrize("between", [" ", "="])
def test_a_flag_that_is_given_twice(slowly, tmp_path, between):
    (tmp_path / "mine.py").write_text(MAKES)
    words = f"--plugin{between}{slowly} --plugin{between}{tmp_path / 'mine.py'}".split()
    said = "--plugin is given more than once", "write --plugin a.py b.py"
    sentence(cli("algorithms", *words), *said)
    sentence(run(*words, algorithm="slowly + mine"), *said)


def test_listed_with_its_reference(slowly):
    line = "slowly(factor=0.5, within=none)"
    about = "Every gradient times `factor` (Nobody 2024)."
    lines = cli("algorithms", "--plugin", slowly).out.splitlines()
    assert lines[-1].split("  ", 1)[0] == line and lines[-1].endswith(about)
    listed = json.loads(cli("algorithms", "--plugin", slowly, "--json").out)
    assert listed[-1] == {"name": "slowly", "arguments": line[len("slowly") :], "about": about, "paper_defaults": {}}
    assert len(listed) == len(json.loads(cli("algorithms", "--json").out)) + 1


def test_expressions_know_the_name_as_any_other(slowly):
    files = (str(slowly),)
    sum_ = chosen_algorithm("scaffold + slowly(0.1) + relaxed_init", files)
    assert [type(piece).__name__ for piece in sum_.pieces] == ["Scaffold", "Slowly", "RelaxedInit"]
    nested = chosen_algorithm("slowly(0.1, within=scaffold())", files)
    assert [type(piece).__name__ for piece in nested.pieces] == ["Scaffold", "Slowly"]
    sentence(run(plugin=slowly, algorithm="slowli"), "did you mean 'slowly'?")
    sentence(run(plugin=slowly, algorithm="slowly(much)"), "slowly's factor must be a number")
    sentence(run(plugin=slowly, algorithm="slowly + slowly"), "the same piece twice")
    sentence(run(algorithm="slowly"), "unknown name 'slowly'", "48 to choose from", "--plugin FILE.py adds")


def test_a_folder_that_exists_is_refused_with_the_command_that_continues_it(tmp_path):
    (tmp_path / "mine.py").write_text(MAKES)
    settings = {"plugin": tmp_path / "mine.py", "algorithm": "mine", "rounds": 1, "steps": 1, "out": tmp_path / "run"}
    assert run(**settings).code == 0
    again = f"or go on with `apiece resume {tmp_path / 'run'} --plugin {tmp_path / 'mine.py'}`"
    sentence(run(**settings), again)
    (tmp_path / "run" / "run.toml").write_text("[config]\nnot toml")
    sentence(run(**settings), f"or go on with `apiece resume {tmp_path / 'run'}`")


def test_a_file_in_the_place_of_a_name_is_told_as_a_plugin(slowly, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("scafold").write_text("")
    for text, plugin in (("at_home.py", {}), ("at_home.py", {"plugin": slowly}), ("a/at_home.py", {})):
        told = f"{text} is a file: give it with --plugin {text}, and name one of its functions with --algorithm.\n"
        assert run(algorithm=text, **plugin).err == f"apiece: {told}"
    sentence(run(algorithm="scaffold + at_home.py(2)"), "12: at_home.py is a file: give it with --plugin at_home.py,")
    sentence(run(algorithm="scafold"), "scafold is a file")
    sentence(run(algorithm="scaffoldd"), "unknown name 'scaffoldd'; did you mean 'scaffold' or")
    sentence(run(split="at_home.py"), "unknown name 'at_home.py'")


def test_a_file_is_read_by_its_own_rules(tmp_path):
    """What this package imports from the future is not its plug-ins': their annotations are what they wrote."""
    (tmp_path / "typed.py").write_text("def typed(x: int): ...\n")
    _, module = plugins._load(str(tmp_path / "typed.py"))
    assert module.typed.__annotations__ == {"x": int} and module.__file__ == str(tmp_path / "typed.py")


def test_it_does_what_it_says(slowly):
    """Half of every gradient is half the step size."""
    half = federate(algorithm="slowly", plugin=slowly, rounds=2, steps=3, lr=0.2, clients=4)
    whole = federate(rounds=2, steps=3, lr=0.1, clients=4)
    assert np.allclose(half.server.params, whole.server.params, atol=1e-6)


# --- recorded, and found again ----------------------------------------------------------------------------------------
def client_file(path: Path) -> Path:
    """The samples of a client that no run has seen."""
    rng = np.random.default_rng(0)
    np.savez(path, x_train=rng.integers(0, 17, (20, 8, 8)).astype(np.uint8), y_train=np.arange(20) % 10)
    return path


def needs_of(folder: Path, beside: Path) -> dict[str, tuple]:
    """The commands that need the plug-ins of a run's folder."""
    (folder / "model.safetensors").unlink(missing_ok=True)  # as if it had been stopped before its end
    out, data = beside / "it.safetensors", client_file(beside / "new.npz")
    again = beside / f"again-{len(list(beside.iterdir()))}"
    return {
        "resume": ("resume", folder),
        "export": ("export", folder, "--out", out),
        "personalize": ("personalize", folder, "--data", data, "--out", out),
        "run": ("run", "--config", folder / "run.toml", "--out", again),
        "run=": ("run", f"--config={folder / 'run.toml'}", "--out", f"{again}-too"),
    }


@pytest.mark.slow
def test_a_run_finds_its_file_again(slowly, tmp_path, monkeypatch, no_report):
    """From another folder, where the command names it: resume, export, personalize; compare needs none."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    assert run(plugin="slowly.py", algorithm="slowly + fine_tune(steps=1)", out=folder).code == 0
    expected = (folder / "model.safetensors").read_bytes()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (entry,) = tomllib.loads((folder / "run.toml").read_text())["config"]["plugin"]
    recorded = plugins.hashlib.sha256(slowly.read_bytes()).hexdigest()
    assert entry == f"{slowly}#sha256={recorded}"
    needs = needs_of(folder, tmp_path)
    for words in needs.values():
        assert cli(*words, "--plugin", slowly).code == 0
    assert (Path(str(needs["run"][-1])) / "model.safetensors").read_bytes() == expected
    moved = tmp_path / "elsewhere" / "moved.py"  # a hash says what is meant, wherever it lies
    for words in needs_of(folder, tmp_path).values():
        moved.write_text(LIGHT)
        assert cli(*words, "--plugin", "moved.py").code == 0
        moved.write_text(LIGHT + "# changed\n")
        sentence(cli(*words, "--plugin", moved), f"the plugin {slowly} with the SHA-256 {recorded}", f"{moved} has ")
        sentence(cli(*words), f"the plugin {slowly} with the SHA-256 {recorded}", f"say --plugin {slowly}")
    assert cli("compare", folder).code == 0  # the table is of what was measured, the references are built in
    made = next(tmp_path.glob("local-*"))
    assert "plugin" not in tomllib.loads((made / "run.toml").read_text())["config"]


EVIL = "import pathlib\npathlib.Path(__file__).with_name('done').touch()\n" + MAKES


def spoiled(folder: Path, plugin: str) -> None:
    """What a stranger may do: write a plug-in of their own into a folder's run.toml."""
    text = (folder / "run.toml").read_text()
    (folder / "run.toml").write_text(text.replace("[config]\n", f"[config]\nplugin = ['{plugin}']\n", 1))


@pytest.mark.slow
@pytest.mark.parametrize("hashed", [False, True])
def test_what_a_folder_names_alone_is_not_run(tmp_path, monkeypatch, no_report, hashed):
    """By no command, however the entry is written: whoever sent the folder may have written it."""
    monkeypatch.chdir(tmp_path)
    folder, done = tmp_path / "run", tmp_path / "done"
    assert run(out=folder).code == 0
    (tmp_path / "evil.py").write_text(f"{EVIL}# {tmp_path}\n")  # the same content is run once
    spoiled(folder, plugins.pinned(["evil.py"])[0] if hashed else "evil.py")
    for words in needs_of(folder, tmp_path).values():
        sentence(cli(*words), "run.toml names the plugin ", "evil.py", "only where the command names it too")
    cells = ("--rows", "fedavg", "--columns", "nothing")
    grid = cli("grid", *cells, "--config", folder / "run.toml", "--out", tmp_path / "grid")
    sentence(grid, "names the plugin ", "evil.py")
    sentence(cli("compare", folder), "run.toml has other settings than its run began with")  # for its references
    for words in (("compare", "--no-references"), ("report",)):
        assert cli(*words, folder, "--out", tmp_path / "page.html").code == 0
    federate(out=str(folder), resume=True, **TINY)  # what a program names itself is what counts there
    with pytest.raises(UserError, match="evil.py"):
        resume(folder)
    with pytest.raises(UserError, match="evil.py"):
        export(folder, None, tmp_path / "it.safetensors")
    with pytest.raises(UserError, match="evil.py"):
        personalize(folder, tmp_path / "new.npz")
    assert not done.exists()
    assert run(plugin="evil.py", algorithm="mine", out=tmp_path / "own").code == 0 and done.exists()


def test_a_file_that_a_run_was_made_without_is_not_run_for_it(slowly, tmp_path, no_report):
    (tmp_path / "evil.py").write_text(EVIL)
    folder = tmp_path / "run"
    assert run(plugin=slowly, algorithm="slowly", out=folder).code == 0
    for words in list(needs_of(folder, tmp_path).values())[:3]:
        ended = cli(*words, "--plugin", slowly, tmp_path / "evil.py")
        sentence(ended, f"was made without the plugin {tmp_path / 'evil.py'}: leave it out")
    assert not (tmp_path / "done").exists()


def test_all_seeds_are_made_with_the_same_file(slowly, tmp_path, no_report):
    assert run(plugin=slowly, algorithm="slowly", seeds="0,1", out=tmp_path / "runs").code == 0
    kept = [tomllib.loads(path.read_text())["config"]["plugin"] for path in tmp_path.rglob("run.toml")]
    assert len(kept) == 3 and kept[0] == kept[1] == kept[2] and plugins.MARK in kept[0][0]


@pytest.mark.slow
def test_a_wired_client_loads_the_file_too(slowly, tmp_path, no_report):
    """Every client is a process built from the run's text: bitwise the sequential run."""
    for lift in ("sequential", "wired"):
        ended = run(plugin=slowly, algorithm="scaffold + slowly(0.3)", lift=lift, out=tmp_path / lift)
        assert ended.code == 0, ended.err
    one, two = ((tmp_path / lift / "model.safetensors").read_bytes() for lift in ("sequential", "wired"))
    assert one == two


def test_what_a_run_is_depends_on_the_content_and_not_on_the_place(slowly, tmp_path):
    first = config(plugin=plugins.pinned([str(slowly)]))
    (tmp_path / "copy.py").write_text(LIGHT)
    assert digest(first) == digest(config(plugin=plugins.pinned([str(tmp_path / "copy.py")]))) != digest(config())
    slowly.write_text(LIGHT + "\n")
    assert digest(first) != digest(config(plugin=plugins.pinned([str(slowly)])))
    assert plugins.pinned(()) == () and "plugin" not in to_table(Config())  # as runs were before there were any


@pytest.mark.slow
def test_in_a_configuration_file(slowly, tmp_path):
    for value in (f"'{slowly}'", f"['{slowly}']"):
        (tmp_path / "it.toml").write_text(f"plugin = {value}\nalgorithm = 'slowly'\nrounds = 1\nclients = 3\n")
        assert from_toml(tmp_path / "it.toml").plugin == (str(slowly),)
        assert cli("run", "--config", tmp_path / "it.toml", "--plugin", slowly).code == 0
        sentence(cli("run", "--config", tmp_path / "it.toml"), f"it.toml names the plugin {slowly}, and a program")
    (tmp_path / "it.toml").write_text("plugin = [3]\n")
    sentence(cli("run", "--config", tmp_path / "it.toml"), "plugin=[3]")


# --- entry points -----------------------------------------------------------------------------------------------------
BROKEN = "import nowhere\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path; what was imported from it is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def test_an_entry_point_that_fails_harms_nobody_else(site, no_report):
    install(site, "broken_one", "broken-name = broken_one:mine", BROKEN)
    told = "the entry point 'broken-name' (broken_one:mine) of broken_one cannot be loaded"
    sentence(run(algorithm="scaffold + broken_name"), "at character 12", told, "broken_one.py, line 1: ModuleNotFound")
    listed = {entry["name"]: entry["about"] for entry in json.loads(cli("algorithms", "--json").out)}
    assert listed["broken_name"].startswith(f"refused: {told}") and listed["fedavg"].startswith("Federated averaging")
    assert run(algorithm="scaffold").code == 0 and "broken_one" not in sys.modules
    sentence(run(algorithm="zzz"), "there are 49 to choose from")


def test_entry_points_that_take_a_name_that_is_taken(site):
    install(site, "greedy", "scaffold = greedy:mine", MAKES)
    install(site, "early", "theirs = early:mine", MAKES)
    install(site, "late", "theirs = late:mine", MAKES)
    sentence(run(algorithm="scaffold"), "(greedy:mine) of greedy has the name of a built-in algorithm: remove one")
    sentence(run(algorithm="theirs"), "has the name of the entry point 'theirs'", "of early", "of late")
    (site / "file.py").write_text(MAKES.replace("mine", "theirs"))
    sentence(run(algorithm="theirs", plugin=site / "file.py"), "has the name of an algorithm of the plugin")
    assert run(algorithm="fedavg").code == 0 and not {"greedy", "early", "late"} & set(sys.modules)


def test_entry_points_that_are_no_constructor(site):
    install(site, "number", "a = number:number", "number = 4\n")
    install(site, "gone", "b = gone:gone")
    install(site, "gives", "c = gives:gives", "def gives():\n    return 6\n")
    install(site, "fails", "d = fails:fails", "def fails(x: int):\n    return int(x / 0)\n")
    sentence(run(algorithm="a"), "the entry point 'a' (number:number) of number is no function")
    sentence(run(algorithm="b"), "the entry point 'b' (gone:gone) of gone cannot be loaded: AttributeError: module")
    sentence(run(algorithm="c"), "gives of the entry point 'c' (gives:gives) of gives gave a value of type int")
    sentence(run(algorithm="d(3)"), f"of fails fails: {site / 'fails.py'}, line 2: ZeroDivisionError: division by zero")


@pytest.mark.slow
def test_it_works_wired_and_its_version_is_recorded(site, no_report):
    install(site, "lazily", "lazily = lazily:slowly", LIGHT)
    for lift in ("sequential", "wired"):
        assert run(algorithm="lazily(0.3)", lift=lift, out=site / lift).code == 0
    one, two = ((site / lift / "model.safetensors").read_bytes() for lift in ("sequential", "wired"))
    assert one == two and tomllib.loads((site / "wired" / "run.toml").read_text())["versions"]["lazily"] == "1.2"


ASKED = """
import sys
from apiece.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
heavy = {'torch', 'numpy', 'weight'} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.parametrize(
    "words", ["--help", "run --help", "data", "algorithms --help", "algorithms --plugin slowly.py"]
)
def test_nothing_heavy_is_imported_before_it_is_named_or_listed(tmp_path, slowly, words):
    if "slowly" not in words:
        install(tmp_path, "weight", "weight = weight:mine", MAKES)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    asked = [sys.executable, "-c", ASKED, *words.split()]
    ended = subprocess.run(asked, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert ended.returncode == 0 and ended.stdout, ended.stderr
