"""Nodes without a network: a grid in this process, by which every algorithm runs bitwise as with `--lift wired`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from support.slots import SLOTS

from apiece.config.assemble import assemble
from apiece.config.model import make_model
from apiece.config.settings import Config
from apiece.deploy import following, frames, own_data, phases, rehearsal
from apiece.deploy.comparing import differing
from apiece.deploy.coordinator import SIMULATED, coordinate, settled
from apiece.deploy.failure import Failure
from apiece.deploy.node import Node, Settings
from apiece.deploy.request import FOLDER, Request, Terms
from apiece.engine import messages
from apiece.engine.messages import Header
from apiece.errors import UserError
from apiece.experiment import folders
from apiece.experiment.launch import run_config
from apiece.storage.checkpoint_files import path_of

ALL = Terms(3, 3, 60.0)
USUAL = Config(rounds=2, steps="3", split="iid", eval_every=9)


@dataclass
class Grid:
    """Nodes of this process, each message to which a test may change, answer or lose."""

    folders: dict[str, Path]
    heard: Callable[[str, bytes], bytes | Failure | None] = lambda name, frame: frame
    answered: Callable[[str, bytes], bytes] = lambda name, frame: frame
    said: list[tuple[str, bytes]] = field(default_factory=list)
    marks: Any = field(default_factory=itertools.count)
    waiting: dict[str, bytes | Failure] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)

    def online(self) -> Mapping[str, Any]:
        return {name: name for name in self.folders if name not in self.away}

    def push(self, to: str, frame: bytes, seconds: float) -> str:
        mark = str(next(self.marks))
        self.said.append((to, frame))
        heard = self.heard(to, frame)
        if isinstance(heard, Failure):
            self.waiting[mark] = heard
        elif heard is not None:
            state = self.folders[to]
            self.waiting[mark] = self.answered(to, Node(state, Settings.of(state)).answer(heard))
        return mark

    def pull(self, marks: Sequence[str]) -> list[tuple[str, bytes | Failure]]:
        return [(mark, self.waiting.pop(mark)) for mark in marks if mark in self.waiting]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Nobody waits longer than needed."""
    for name, seconds in {"LOOK": 0.0, "POLL": 0.001, "AGAIN": 0.01}.items():
        monkeypatch.setattr(phases, name, seconds)


def dealt(config: Config, home: Path, nodes: int = 3) -> Grid:
    """Nodes with the data of a configuration's clients."""
    folders = {}
    for name in rehearsal.deal(replace(config, clients=nodes), home):
        folders[name] = home / "nodes" / name
        Settings(name, str(home / "data" / f"{name}.npz")).save(folders[name])
    return Grid(folders)


def asked(config: Config, home: Path, terms: Terms = ALL, name: str = "deployed") -> Request:
    request = Request(home / "serve" / FOLDER / f"{name}.toml")
    usual = Config()
    simulated: dict[str, Any] = {name: getattr(usual, name) for name in SIMULATED}
    config = replace(config, **simulated, out=str(home / name))
    request.write(settled(config, terms.nodes), terms)
    return request


def wired(config: Config, home: Path) -> Path:
    """The folder of the same run with processes of this machine."""
    run_config(replace(config, clients=3, lift="wired", on_bad_client="skip", out=str(home / "wired")))
    return home / "wired"


def deployed(config: Config, home: Path, grid: Grid, terms: Terms = ALL) -> Path:
    request = asked(config, home, terms)
    coordinate(request, grid)
    assert request.ended() == "done", request.ended()
    return home / "deployed"


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", SLOTS)
def test_a_deployed_run_is_bitwise_the_wired_one(algorithm, tmp_path):
    rounds = 4 if algorithm.startswith("fedals") else 2  # two intervals of its body
    config = replace(USUAL, algorithm=algorithm, rounds=rounds, **SLOTS[algorithm])
    one = deployed(config, tmp_path, dealt(config, tmp_path))
    two = wired(config, tmp_path)
    assert rehearsal.differences(tmp_path, ["client-0", "client-1", "client-2"]) == []
    last = [json.loads((path / "metrics.jsonl").read_text().splitlines()[-1]) for path in (one, two)]
    shared = [name for name in last[0] if name.startswith(("personal_", "adapted_"))]
    assert {"personal_accuracy_mean", "adapted_accuracy"} <= {*shared}
    assert all(last[0][name] == pytest.approx(last[1][name], abs=1e-6) for name in shared)


@pytest.mark.slow
def test_owners_in_a_table_are_called_as_nodes_may_be_and_its_labels_may_be_text(tmp_path):
    """`hall B` is no name of a node, and stands before `hall A`; one of the halls has no `fine` machine."""
    rng, rows = np.random.default_rng(0), ["heat,kind,site,state"]
    for site, count in {"hall B": 20, "hall A": 15, "yard": 12}.items():
        for heat in rng.normal(60, 10, count):
            state = "fine" if heat < 60 and site != "yard" else "fault"
            rows.append(f"{heat:.1f},{rng.choice(['pump', 'fan'])},{site},{state}")
    (tmp_path / "machines.csv").write_text("\n".join(rows))
    table = {"data": str(tmp_path / "machines.csv"), "target_column": "state", "client_column": "site"}
    config = Config(algorithm="scaffold", rounds=2, steps="3", eval_every=9, unseen=1, **table)
    config = rehearsal.called(rehearsal.both(config, 3), tmp_path)
    grid = dealt(config, tmp_path)
    assert sorted(grid.folders) == ["client-0", "client-1", "client-2"]
    deployed(replace(config, clients=None), tmp_path, grid)
    wired(config, tmp_path)
    assert rehearsal.differences(tmp_path, sorted(grid.folders)) == []


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float64", "bfloat16"])
def test_nodes_compute_in_the_precision_of_the_run(precision, tmp_path):
    config = replace(USUAL, precision=precision, device="cpu")
    deployed(config, tmp_path, dealt(config, tmp_path))
    wired(config, tmp_path)
    assert rehearsal.differences(tmp_path, ["client-0", "client-1", "client-2"]) == []


def images(home: Path, *shape: int) -> Config:
    """The settings of a run on images of this shape, which lie in a file."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(60, *shape), dtype=np.uint8), np.arange(60) % 3
    np.savez(home / "images.npz", x_train=x, y_train=y, x_test=x[:30], y_test=y[:30])
    return replace(USUAL, data=str(home / "images.npz"), model="softmax_regression", task="classification")


@pytest.mark.parametrize("shape", [(4, 6, 3), (4, 4), (3, 3, 1), (8, 8, 4), (8, 8)])
def test_a_node_reads_the_images_that_the_simulation_sees(tmp_path, shape):
    config = images(tmp_path, *shape)
    experiment = assemble(replace(config, clients=3))
    grid = dealt(config, tmp_path)
    for client, folder in enumerate(grid.folders.values()):
        own = own_data.samples(Node(folder, Settings.of(folder)).dataset, [0, 1, 2]).train
        assert all(map(torch.equal, own, experiment.federation.samples(client).all()))


@pytest.mark.slow
def test_a_deployed_run_on_images_of_any_size_is_bitwise_the_wired_one(tmp_path):
    config = images(tmp_path, 4, 6, 3)
    deployed(config, tmp_path, dealt(config, tmp_path))
    wired(config, tmp_path)
    assert rehearsal.differences(tmp_path, ["client-0", "client-1", "client-2"]) == []


def test_more_than_ten_clients_stand_in_the_order_of_their_nodes(tmp_path):
    usual = rehearsal.both(replace(USUAL, split="iid"), 11)
    named = rehearsal.called(usual, tmp_path)
    assert rehearsal.deal(named, tmp_path) == [f"client-{number:02}" for number in range(11)]
    assert rehearsal.called(replace(usual, clients=10), tmp_path).split == "iid"


@pytest.mark.slow
def test_a_node_that_is_away_is_absent_and_its_memory_goes_on(tmp_path, monkeypatch):
    """One of three nodes is away in round 2: the run is that of two, and in round 3 of three again."""
    config = replace(USUAL, algorithm="scaffold", rounds=3)
    grid, rounds = dealt(config, tmp_path), set[int]()

    def heard(name: str, frame: bytes) -> bytes | None:
        head, body = frames.unpack(frame)
        round = messages.unpack(body)[0].round if head["ask"] == "answer" else -1
        rounds.add(round)
        return None if name == "client-1" and round == 1 else frame

    grid.heard = heard
    folder = deployed(config, tmp_path, grid, Terms(3, 2, 2.0))
    answered = [json.loads(line)["answered"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert answered == [3, 2, 3]
    log = (tmp_path / "serve" / FOLDER / "deployed.log").read_text()
    assert "'client-1' did not answer in time" in log and "round 2: 1 of 3 nodes did not count" in log

    monkeypatch.setattr("apiece.config.assemble.absent", lambda seed, round, *_: frozenset({1} if round == 1 else ()))
    wired(config, tmp_path)
    assert rehearsal.differences(tmp_path, ["client-0", "client-1", "client-2"]) == []


@pytest.mark.slow
def test_a_server_that_dies_in_a_phase_goes_on_from_its_checkpoint(tmp_path):
    config = replace(USUAL, algorithm="scaffold", rounds=3, checkpoint_every=2)
    grid, dies = dealt(config, tmp_path), iter(range(8))

    def heard(name: str, frame: bytes) -> bytes:
        if next(dies, None) == 7:
            raise RuntimeError("killed")
        return frame

    grid.heard = heard
    request = asked(config, tmp_path)
    with pytest.raises(RuntimeError, match="killed"):
        coordinate(request, grid)
    assert request.ended() is None
    coordinate(request, grid)
    assert request.ended() == "done"
    wired(config, tmp_path)
    assert rehearsal.differences(tmp_path, ["client-0", "client-1", "client-2"]) == []


def joining(config: Config, home: Path, nodes: int) -> tuple[list[int], str]:
    """(how many answered in each round, the log) of a run that client-1 finds under way in its second round."""
    grid = dealt(config, home, nodes)
    grid.away = {"client-1"}

    def heard(name: str, frame: bytes) -> bytes:
        if round_of(frame) == 1:
            grid.away = set()
        return frame

    grid.heard = heard
    folder = deployed(config, home, grid, Terms(nodes - 1, nodes - 1, 60.0))
    answered = [json.loads(line)["answered"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return answered, asked_log(home)


@pytest.mark.slow
def test_a_node_joins_between_rounds(tmp_path):
    answered, log = joining(replace(USUAL, algorithm="scaffold", rounds=3), tmp_path, 3)
    assert answered == [2, 2, 3] and "client-1 takes part from now on" in log


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["pefll", "pfedhn"])
def test_no_node_joins_a_run_whose_server_would_have_another_size_with_it(algorithm, tmp_path):
    answered, log = joining(replace(USUAL, algorithm=algorithm, rounds=3), tmp_path, 4)
    assert answered == [3, 3, 3] and "client-1 cannot join: this algorithm's server has a size" in log


@pytest.mark.slow
def test_a_run_is_stopped_and_goes_on(tmp_path):
    config = replace(USUAL, algorithm="scaffold", rounds=3)
    grid, request = dealt(config, tmp_path), asked(config, tmp_path)

    def heard(name: str, frame: bytes) -> bytes:
        if frames.unpack(frame)[0]["ask"] == "answer" and not (tmp_path / "deployed" / "metrics.jsonl").exists():
            request.stop.touch()
        return frame

    grid.heard = heard
    coordinate(request, grid)
    assert request.ended() == "stopped after round 1"
    assert following.go_on(request).endswith("goes on from its last checkpoint.")
    coordinate(request, grid)
    assert request.ended() == "done" and following.go_on(request).startswith("run 'deployed' is done")
    wired(config, tmp_path)
    assert rehearsal.differences(tmp_path, ["client-0", "client-1", "client-2"]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm", ["scaffold_p", "fedals(alpha=2) + fedinit(beta=0.1)", "pefll", "fedcog(wait=1, steps=2, samples=8)"]
)
def test_a_run_that_is_done_gets_more_rounds_and_is_the_run_that_had_them_from_the_start(algorithm, tmp_path):
    config = replace(USUAL, algorithm=algorithm, rounds=6, checkpoint_every=4)
    grid, request = dealt(config, tmp_path), asked(replace(config, rounds=3), tmp_path)
    coordinate(request, grid)
    assert request.ended() == "done" and "--rounds N gives it more than its 3 rounds" in following.go_on(request)
    said = following.go_on(request, 5)
    assert said == "run 'deployed' goes on from its last checkpoint, and has 5 rounds now." and request.ended() is None
    request.stop.touch()
    coordinate(request, grid)
    assert request.ended() == "stopped after round 3"  # which it repeats
    following.go_on(request, 6)
    with pytest.raises(UserError, match="is going on with 6 rounds: stop it first"):
        following.go_on(request, 7)
    coordinate(request, grid)
    assert request.ended() == "done" and folders.recorded(tmp_path / "deployed").rounds == 6
    wired(config, tmp_path)
    assert rehearsal.differences(tmp_path, ["client-0", "client-1", "client-2"]) == []


@pytest.mark.slow
def test_rounds_that_a_run_on_nodes_cannot_have_are_refused_and_it_stays_as_it_is(tmp_path):
    config = replace(USUAL, schedule="cosine", rounds=2)
    grid, request = dealt(config, tmp_path), asked(config, tmp_path)
    coordinate(request, grid)
    few = "has done 2 rounds, and rounds=1 are fewer"
    for rounds, said in ((1, few), (0, "rounds"), (4, "schedule='cosine' depends on")):
        with pytest.raises(UserError, match=said):
            following.go_on(request, rounds)
        assert request.ended() == "done" and request.read()[0] == replace(request.read()[0], rounds=2)


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_after_another_run_with_its_settings(tmp_path):
    config = replace(USUAL, algorithm="scaffold", rounds=5)
    grid, request = dealt(config, tmp_path), asked(config, tmp_path)

    def heard(name: str, frame: bytes) -> bytes:
        if round_of(frame) == 0:
            request.stop.touch()
        return frame

    grid.heard = heard
    coordinate(request, grid)
    assert request.ended() == "stopped after round 1"
    grid.heard = lambda name, frame: frame
    other = asked(config, tmp_path, name="other")
    coordinate(other, grid)
    following.go_on(request)
    coordinate(request, grid)
    assert (request.ended(), other.ended()) == ("done", "done")
    wired(config, tmp_path)
    assert rehearsal.differences(tmp_path, ["client-0", "client-1", "client-2"]) == []


@pytest.mark.slow
def test_a_run_that_waits_for_a_quorum_can_be_stopped_and_goes_on(tmp_path):
    config = replace(USUAL, algorithm="scaffold", rounds=3)
    grid, request = dealt(config, tmp_path), asked(config, tmp_path, Terms(3, 3, 1.0))

    def heard(name: str, frame: bytes) -> bytes:
        head, body = frames.unpack(frame)
        if head["ask"] == "answer" and messages.unpack(body)[0].round == 1:
            grid.away = {"client-0"}
            request.stop.touch()
        return frame

    grid.heard = heard
    coordinate(request, grid)
    assert request.ended() == "stopped while it waited for nodes: what counts are the rounds before"
    assert len((tmp_path / "deployed" / "metrics.jsonl").read_text().splitlines()) == 2
    grid.away, grid.heard = set(), lambda name, frame: frame
    following.go_on(request)
    coordinate(request, grid)
    assert request.ended() == "done"
    wired(config, tmp_path)
    assert rehearsal.differences(tmp_path, ["client-0", "client-1", "client-2"]) == []


def test_a_run_that_waits_for_its_nodes_says_so_and_can_be_stopped(tmp_path):
    grid, request = dealt(USUAL, tmp_path), asked(USUAL, tmp_path)
    grid.away = {"client-0", "client-2"}
    looks = iter(range(5))
    online = grid.online

    def look() -> Mapping[str, Any]:
        if next(looks, None) is None:
            request.stop.touch()
        return online()

    grid.online = look  # type: ignore[method-assign]
    coordinate(request, grid)
    assert request.ended() == "stopped before its first round" and not (tmp_path / "deployed").exists()
    assert request.log.read_text().count("1 of 3 nodes are there: client-1; the run waits for more.") == 1
    following.go_on(request)
    assert request.due() and request.told() is None


def tables(home: Path, wards: Mapping[str, str]) -> Grid:
    """Nodes with a table each, of a number with gaps and a text of the node's words."""
    folders = {}
    for shift, (name, words) in enumerate(wards.items()):
        rows = [f"{20 + i % 7 + shift if i % 5 else ''},{words[i % len(words)]},{'xy'[i % 2]}" for i in range(40)]
        (home / f"{name}.csv").write_text("\n".join(["age,ward,label", *rows]))
        folders[name] = home / "nodes" / name
        Settings(name, str(home / f"{name}.csv")).save(folders[name])
    return Grid(folders)


@pytest.mark.slow
def test_nodes_whose_tables_have_text_and_gaps_train_together(tmp_path):
    grid = tables(tmp_path, {"north": "AB", "south": "BA"})
    folder = deployed(replace(USUAL, algorithm="fedavg", model="mlp"), tmp_path, grid, Terms(2, 2, 60.0))
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["answered"] == 2 and 0 <= last["global_accuracy"] <= 1


@pytest.mark.slow
def test_nodes_with_texts_train_the_model_that_fits_texts(tmp_path):
    folders = {}
    for name in ("north", "south"):
        lines = [json.dumps({"text": f"{name} says {i}", "label": "xy"[i % 2]}) for i in range(10)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
        folders[name] = tmp_path / "nodes" / name
        Settings(name, str(tmp_path / f"{name}.jsonl")).save(folders[name])
    config = replace(USUAL, rounds=1, steps="1", batch=2)
    folder = deployed(config, tmp_path, Grid(folders), Terms(2, 2, 60.0))
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["answered"] == 2 and 'model = "opt"' in (folder / "run.toml").read_text()


def test_a_node_that_is_back_with_its_columns_in_another_order_does_not_count(tmp_path):
    """Numbers alone would fit the model in any order."""
    grid = tables(tmp_path, {"north": "AB", "south": "AB"})
    whole = "\n".join(["age,weight,label", *(f"{i},{i % 9},{i % 2}" for i in range(40))])
    turned = "\n".join(["weight,age,label", *(f"{i % 9},{i},{i % 2}" for i in range(40))])
    for name in grid.folders:
        (tmp_path / f"{name}.csv").write_text(whole)
    request = asked(replace(USUAL, algorithm="fedavg", model="mlp", rounds=3), tmp_path, Terms(2, 2, 60.0))

    def heard(name: str, frame: bytes) -> bytes:
        if name == "north" and round_of(frame) == 1:
            (tmp_path / "north.csv").write_text(turned)
        return frame

    grid.heard = heard
    coordinate(request, grid)
    lines = [json.loads(line) for line in (tmp_path / "deployed" / "metrics.jsonl").read_text().splitlines()]
    assert [line["answered"] for line in lines] == [2, 1, 1]
    why = "node 'north' has the columns ['weight', 'age'], and the run is for ['age', 'weight']: its data changed since"
    assert why in request.log.read_text()


def test_nodes_whose_tables_have_other_words_are_refused(tmp_path):
    grid = tables(tmp_path, {"north": "AB", "south": "ABC"})
    request = asked(USUAL, tmp_path, Terms(2, 2, 60.0))
    coordinate(request, grid)
    why = str(request.ended())
    assert "column 2 is 'ward (A, B)' on the first and 'ward (A, B, C)' on the second" in why
    assert following.stop(request) == f"run 'deployed' has ended already: {why}" and not request.stop.exists()


@pytest.mark.slow
@pytest.mark.parametrize("rounds, more", [(None, ""), (2, ", and has 2 rounds now")])
def test_a_run_that_failed_before_its_first_round_asks_the_nodes_anew_once_their_data_are_mended(
    rounds, more, tmp_path
):
    grid = tables(tmp_path, {"north": "AB", "south": "ABC"})
    request = asked(replace(USUAL, rounds=1), tmp_path, Terms(2, 2, 60.0))
    coordinate(request, grid)
    tables(tmp_path, {"north": "AB", "south": "BA"})
    assert following.go_on(request, rounds) == f"run 'deployed' begins anew, as none of its rounds is done{more}."
    coordinate(request, grid)
    lines = (tmp_path / "deployed" / "metrics.jsonl").read_text().splitlines()
    assert request.ended() == "done" and len(lines) == (rounds or 1)


def served(config: Config, home: Path, grid: Grid) -> str:
    """The log of a run in whose training client-1 was away, once it asked for a model."""
    request = asked(config, home, Terms(3, 3, 1.0))
    grid.away = {"client-1"}
    coordinate(request, grid)
    grid.away = set()
    request.newcomers.touch()
    coordinate(request, grid)
    assert request.ended() == "done" and not request.newcomers.exists()
    return request.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedper", "pefll"])
def test_every_node_has_its_model_and_a_newcomer_gets_one(algorithm, tmp_path):
    """The size of PeFLL's descriptors follows from the number of clients: it is another for four than for three."""
    config = replace(USUAL, algorithm=algorithm)
    grid = dealt(config, tmp_path, 4)
    assert "node 'client-1', which was not in training, has a model: accuracy 0." in served(config, tmp_path, grid)
    (run,) = (grid.folders["client-0"] / "runs").iterdir()
    folders = [folder / "runs" / run.name for folder in grid.folders.values()]
    models = [safetensors.torch.load_file(folder / "model.safetensors") for folder in folders]
    whole = make_model("auto", (1, 8, 8), 10)
    for model in models:
        whole.load_state_dict(model)
    assert any(not torch.equal(models[0][name], models[2][name]) for name in models[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm, what",
    [("scaffold_p", "with the initial parameters for its own"), ("pfedhn", "of the mean descriptor")],
)
def test_a_newcomer_whose_model_nothing_trained_is_told_so(algorithm, what, tmp_path):
    config = replace(USUAL, algorithm=algorithm)
    assert f"has a model {what}, " in served(config, tmp_path, dealt(config, tmp_path, 4))


@pytest.mark.slow
def test_nobody_waits_for_a_newcomer_that_falls_silent(tmp_path):
    grid, asked_before = dealt(USUAL, tmp_path, 4), list[str]()

    def heard(name: str, frame: bytes) -> bytes | None:
        if name != "client-1" or frames.unpack(frame)[0]["ask"] != "answer":
            return frame
        asked_before.append(name)
        assert len(asked_before) == 1, "it is asked again after the deadline"
        return None

    grid.heard = heard
    assert "'client-1' did not answer in time." in served(USUAL, tmp_path, grid)


def round_of(frame: bytes) -> int:
    """The round that a frame is about, counted from 0; -1 where it is about none."""
    head, body = frames.unpack(frame)
    return messages.unpack(body)[0].round if {head.get("ask"), head.get("is")} & {"answer"} else -1


def changed(how: Callable[[Header, dict[str, Any]], tuple[Header, dict[str, Any]]]) -> Callable[[bytes], bytes]:
    """What makes another answer of an answer, with a checksum that is right."""

    def change(frame: bytes) -> bytes:
        head, body = frames.unpack(frame)
        return frames.pack(head, messages.pack(*how(*messages.unpack(body))))

    return change


LIES = {
    "not finite": lambda h, t: (h, t | {"delta": torch.full_like(t["delta"], float("nan"))}),
    "another shape": lambda h, t: (h, t | {"delta": t["delta"][:-1]}),
    "a part less": lambda h, t: (h, {name: part for name, part in t.items() if name != "delta"}),
    "a million times the weight": lambda h, t: (h._replace(number=1e6 * h.number), t),
    "another's name": lambda h, t: (h._replace(client=0), t),
    "another round": lambda h, t: (h._replace(round=0), t),
    "another run": lambda h, t: (h._replace(run="0" * 16), t),
}


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_lies_does_not_count_and_the_log_says_whose_it_was(lie, tmp_path, monkeypatch):
    """Of three nodes client-1 lies in round 2: the run is the one in which it was absent, and it counts again after."""
    config, change = replace(USUAL, algorithm="scaffold", rounds=3), changed(LIES[lie])
    grid = dealt(config, tmp_path)
    grid.answered = lambda name, frame: change(frame) if name == "client-1" and round_of(frame) == 1 else frame
    folder = deployed(config, tmp_path, grid)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["answered"] for line in lines] == [3, 2, 3]
    (said,) = (line for line in asked_log(tmp_path).splitlines() if "does not count" in line)
    assert "node 'client-1' does not count: client 'client-1'" in said and "round 2" in said and "resume" not in said

    monkeypatch.setattr("apiece.config.assemble.absent", lambda seed, round, *_: frozenset({1} if round == 1 else ()))
    wired(config, tmp_path)
    states = [safetensors.torch.load_file(path_of(tmp_path / name, 3)) for name in ("deployed", "wired")]
    assert differing(*states) == ["traffic"]  # the bytes of the lie were sent


@pytest.mark.slow
def test_a_round_in_which_every_node_declines_ends_the_run_which_goes_on_once_they_are_mended(tmp_path):
    config, change = replace(USUAL, algorithm="scaffold", rounds=3), changed(LIES["not finite"])
    grid, request = dealt(config, tmp_path), asked(config, tmp_path)
    grid.answered = lambda name, frame: change(frame) if round_of(frame) == 1 else frame
    coordinate(request, grid)
    why = str(request.ended())
    assert why.startswith("failed: no node's answer counted in round 2 (the first: client 'client-0'")
    assert "`apiece deploy resume` goes on" in why and why.endswith("in a new run.")
    assert len((tmp_path / "deployed" / "metrics.jsonl").read_text().splitlines()) == 1

    grid.answered = lambda name, frame: frame
    following.go_on(request)
    coordinate(request, grid)
    assert request.ended() == "done"
    wired(config, tmp_path)
    states = [safetensors.torch.load_file(path_of(tmp_path / name, 3)) for name in ("deployed", "wired")]
    assert differing(*states) == []


def asked_log(home: Path) -> str:
    return (home / "serve" / FOLDER / "deployed.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["to nodes", "from nodes"])
def test_what_is_replayed_and_reordered_changes_nothing(way, tmp_path):
    """Every earlier message comes once more before each new one, in the reverse order; or, in place of a node's answer,
    first the one that it gave a round before.
    """
    config = replace(USUAL, algorithm="scaffold", rounds=3)
    grid, before, last = dealt(config, tmp_path), dict[str, list[bytes]](), dict[str, bytes]()

    def heard(name: str, frame: bytes) -> bytes:
        node = Node(grid.folders[name], Settings.of(grid.folders[name]))
        for old in reversed(before.setdefault(name, [])):
            node.answer(old)
        before[name].append(frame)
        return frame

    def answered(name: str, frame: bytes) -> bytes:
        old, last[name] = last.get(name), frame
        return old if old is not None and name == "client-1" and round_of(frame) == 1 else frame

    grid.heard, grid.answered = (heard, grid.answered) if way == "to nodes" else (grid.heard, answered)
    folder = deployed(config, tmp_path, grid)
    if way == "to nodes":
        wired(config, tmp_path)
        assert rehearsal.differences(tmp_path, ["client-0", "client-1", "client-2"]) == []
    else:
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert [line["answered"] for line in lines] == [3, 2, 3]
        assert "node 'client-1' does not count: client 'client-1' sent what is no answer to" in asked_log(tmp_path)
