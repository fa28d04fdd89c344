"""Clients in processes of their own: bitwise the sequential run, whatever ends between two messages, and bytes only."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
from collections import deque
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors.torch
import torch
from support import tiers
from support.helpers import clusters, federate, mlp
from support.outer import cli
from support.pipelines import pipeline
from support.recipes import Stop, stopping
from support.wired import CONFIG, PIPELINES, SIMULATED, said, same, sequential

from apiece.algebra.composition import algorithm
from apiece.algebra.place import Traffic
from apiece.config.assemble import assemble
from apiece.config.settings import Config
from apiece.engine import messages as wire
from apiece.engine.clients import BadClient, Clients
from apiece.engine.messages import Header
from apiece.engine.state import Plan
from apiece.engine.work import Work
from apiece.errors import UserError
from apiece.experiment import identity
from apiece.experiment.exporting import export
from apiece.experiment.launch import federate as program
from apiece.experiment.launch import resume, run_config
from apiece.experiment.run import execute
from apiece.language import algorithms as named
from apiece.language.grammar import parse
from apiece.lifts.lift import Sequential
from apiece.pieces.proximal import Proximal
from apiece.storage.row_format import StoreError
from apiece.system import files
from apiece.system import processes as spawn
from apiece.wired import processes as client_processes
from apiece.wired import server as wired
from apiece.wired.client import REFUSED, Client, serve
from apiece.wired.client_folder import DATA, recall
from apiece.wired.server import Wired, WiredClients

RICH = "fedals(alpha=3) + scaffold"
ALGORITHMS = ["fedavg", "fedprox(mu=0.1)", "period(body, 2)", "scaffold", "fedinit",
    "fedinit(aggregate=delta, first=current)", RICH, "fedavg_p(outer_personal=0.5)", "scaffold_p + relaxed_init(0.1)",
    "local", "feddyn + relaxed_init(0.1)", "fedcm(0.3)", "fedsam + fedexp", "fednova + fedavgm(form=normalized)",
    "fedrep + fine_tune", "ditto", "apfl", "pfedme(lam=2)", "per_fedavg(variant=hessian_free)", "knn_per",
    "fedreg(steps=2, batches=2)", "fedgen(epochs=3) + relaxed_init(0.1)",
    "vhl(samples=60, batch=16) + relaxed_init(0.1)", "moon + fedcog(samples=8, steps=2)", "fedalt + fedadam(lr=0.01)",
    "lg_fedavg + feddecorr + fedyogi(lr=0.01)", "fedsim + fedadagrad(lr=0.01) + class_mask",
    "fedper + fedcm", "diloco(every=2)", "streaming_diloco(every=3, alpha=0.3) + fedit('*')", "ffa_lora('*bias')",
    "fedsa_lora('*bias')", "rolora('*bias', '*weight')", "fed_dpa('*bias')"]  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "kept": {"steps": "50", "epochs": 1, "optimizer": "sgd(momentum=0.9)", "optimizer_state": "kept",
             "weighting": "uniform"},
    "cnn": {"model": "cnn", "augment": "flip", "server": "momentum(0.9)", "steps": "1", "cohort": 2.0, "unseen": 2},
    "float64": {"precision": "float64", "clip": 1.0, "schedule": "exponential(0.9)", "workers": 1},
    "norm": {"algorithm": "fedbn", "model": "resnet20", "rounds": 2, "steps": "1", "cohort": 2.0, "clients": 3},
}


# a name catches what its messages or memories leave out
@pytest.mark.parametrize("name", tiers.but(("ditto",), ALGORITHMS))
def test_wired_is_bitwise_sequential(name):
    config = replace(CONFIG, algorithm=name)
    result = run_config(config)[0]
    assert same(result, sequential(config))
    assert not SIMULATED & set().union(*result.metrics)
    assert result.metrics[-1]["bytes_up"] > 4 * result.metrics[-1]["numbers_up"]


def test_every_name_is_run_over_the_wire():
    recipes = [*ALGORITHMS, *PIPELINES, *(given.get("algorithm", "scaffold") for given in SETTINGS.values())]
    pooled = {"centralized"}  # its data lie in one place: there is no client to be a process
    assert {call.name for text in recipes for call in parse(text)} == set(named.NAMED) - pooled


# settings catch one that a client's text leaves out
@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_settings_reach_the_clients(settings):
    config = replace(CONFIG, **({"algorithm": "scaffold"} | settings))
    assert same(run_config(config)[0], sequential(config))


@pytest.mark.slow
def test_the_run_folder_is_the_same(tmp_path):
    folders_of = {lift: tmp_path / lift for lift in ("wired", "sequential")}
    for lift, folder in folders_of.items():
        run_config(replace(CONFIG, algorithm="fedavg_p", lift=lift, out=str(folder)))
    one, two = folders_of.values()
    for name in ("model.safetensors", "clients.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    assert {p.name for p in (one / "clients").iterdir()} <= set(assemble(CONFIG).training.names)
    assert "Wired(workers=2)" in (one / "run.toml").read_text()
    assert (one / "report.html").is_file()
    export(one, "client-3", tmp_path / "one")
    export(two, "client-3", tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


# --- processes that end ------------------------------------------------------------------------------------
# moments catch what a process had in its head alone
@pytest.mark.slow
@pytest.mark.parametrize("when", tiers.but(("killed after",), ["ended", "killed before", "killed after"]))
def test_every_message_may_meet_a_new_process(monkeypatch, when):
    """Ended when idle; killed, which the next message finds; killed while it works, at most once a message."""
    give, take, taken = client_processes.ClientProcesses._give, client_processes.ClientProcesses._take, []

    def killed_before(self, folder, live):
        live.process.kill()
        live.process.join()
        give(self, folder, live)

    def killed_after(self, folder):
        live = take(self, folder)
        taken.append(live.process.pid)
        if len(taken) % 2:
            send = live.pipe.send_bytes
            pipe = SimpleNamespace(
                send_bytes=lambda m: (send(m), live.process.kill()),
                fileno=live.pipe.fileno,
                close=live.pipe.close,
                recv_bytes=live.pipe.recv_bytes,
            )
            return spawn.Live(live.process, pipe)
        return live

    if when == "killed after":
        monkeypatch.setattr(client_processes.ClientProcesses, "_take", killed_after)
    elif when == "killed before":
        monkeypatch.setattr(client_processes.ClientProcesses, "_give", killed_before)
    else:
        monkeypatch.setattr(client_processes, "IDLE", 0)
    config = replace(CONFIG, algorithm=RICH, rounds=3, workers=1 if when == "killed after" else 2)
    assert same(run_config(config)[0], sequential(config))
    assert when != "killed after" or len(set(taken)) > 1


@pytest.mark.slow
def test_a_process_that_ends_twice_is_absent(monkeypatch):
    take = client_processes.ClientProcesses._take

    def killed(self, folder):
        live = take(self, folder)
        if folder.name == "client-0":
            live.process.kill()
            live.process.join()
        return live

    monkeypatch.setattr(client_processes.ClientProcesses, "_take", killed)
    config = replace(CONFIG, algorithm="scaffold", cohort=1.0, absent=0.0, rounds=2)
    result = run_config(config)[0]
    assert [info["answered"] for info in result.metrics] == [5, 5]
    experiment = assemble(replace(config, lift="sequential"))
    clients = Clients(experiment.federated, experiment.training, experiment.work, config.seed, Sequential())
    server = experiment.federated.start()
    total = Traffic()
    for t in range(2):
        everyone, killed = [0, 1, 2, 3, 4, 5], frozenset({0})
        server, answer = experiment.federated.round(server, clients, Plan(everyone, killed, config.lr))
        clients.commit(t)
        total = total.plus(answer.traffic)
    assert torch.equal(server.params, result.server.params)
    ledger = "parameters_down control_down numbers_down bytes_down numbers_up bytes_up".split()  # it was sent the model
    assert [result.metrics[-1][name] for name in ledger] == [getattr(total, name) for name in ledger]


@pytest.mark.slow
def test_a_client_that_is_not_finite_says_so():
    config = replace(CONFIG, lr=1e30, rounds=2)
    with pytest.raises(BadClient, match="step size 1e"):
        run_config(config)
    config = replace(config, on_bad_client="skip", optimizer="sgd(weight_decay=1e30)", steps="2", eval_every=9)
    result = run_config(config)[0]
    assert [info["skipped"] for info in result.metrics] == [info["skipped"] for info in sequential(config).metrics]
    assert sum(info["skipped"] for info in result.metrics) > 0


# --- going on ----------------------------------------------------------------------------------------------
def stopped(config: Config, after: int) -> Path:
    """The folder of a run that ended after so many rounds."""
    with pytest.raises(Stop):
        execute(assemble(config), Path(config.out), [stopping(after)])
    return Path(config.out)


@pytest.mark.slow
@pytest.mark.parametrize("name", tiers.but((RICH,), [RICH, "scaffold_p + relaxed_init(0.1)"]))
def test_resume_is_bitwise(tmp_path, name):
    """From a checkpoint two rounds old, the clients having remembered a round that did not count in it."""
    config = replace(CONFIG, algorithm=name, rounds=5, checkpoint_every=2, out=str(tmp_path / "run"))
    folder = stopped(config, after=3)
    resume(folder)
    whole = sequential(config)
    state = safetensors.torch.load_file(folder / "model.safetensors")
    assert all(torch.equal(state[k], v) for k, v in whole.model().items())
    log = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert said(log) == said(whole.metrics)


@pytest.mark.slow
def test_falling_back_one_checkpoint_is_bitwise(tmp_path):
    """The newest checkpoint is lost; clients still have what the one before needs, twice in a row."""
    config = replace(CONFIG, algorithm=RICH, rounds=5, out=str(tmp_path / "run"))
    folder = stopped(config, after=3)
    for _ in range(2):
        newest = max((folder / "checkpoints").glob("round-*.safetensors"))
        newest.write_bytes(newest.read_bytes()[:-1])
        with pytest.raises(Stop):
            execute(assemble(config), folder, [stopping(4)], resume=True)
    resume(folder)
    state = safetensors.torch.load_file(folder / "model.safetensors")
    assert all(torch.equal(state[k], v) for k, v in sequential(config).model().items())
    for client in (folder / "clients").iterdir():
        assert len(list(client.glob("round-*"))) <= 4


@pytest.mark.slow
def test_a_client_without_the_memory_says_so(tmp_path):
    config = replace(CONFIG, algorithm="scaffold", rounds=3, cohort=1.0, absent=0.0, out=str(tmp_path / "run"))
    folder = stopped(config, after=1)
    for path in folder.glob("clients/*/round-*"):
        path.unlink()
    with pytest.raises(UserError, match="memory of round 1 is not there"):
        resume(folder)


# ways to rot catch a check of the name, the content or the owner alone
@pytest.mark.slow
@pytest.mark.parametrize("rot", ["bit", "gone", "another client's"])
def test_a_memory_that_rots_is_named_and_the_checkpoint_before_serves(tmp_path, rot, capsys):
    """The other clients begin from that one too; where it has no whole memory either, nothing is changed."""
    config = replace(CONFIG, algorithm=RICH, rounds=4, cohort=1.0, absent=0.0, out=str(tmp_path / "run"))
    folder = stopped(config, after=3)
    older, path = sorted(folder.glob("clients/client-3/round-*"))[-2:]  # those of the last two checkpoints
    whole, digest, checksum = path.read_bytes(), identity.digest(config, folder), int(path.stem.split("-")[2], 16)
    for place in (0, 3, 30, 60, 100, 109, 200, len(whole) - 1):
        path.write_bytes(bytes(byte ^ (1 << place % 8) * (at == place) for at, byte in enumerate(whole)))
        with pytest.raises(StoreError, match="the client's memory of round 3 is damaged"):
            recall(path.parent, digest, 3, 2, checksum)
    if rot == "gone":
        path.unlink()
    elif rot == "another client's":
        path.write_bytes(next(folder.glob("clients/client-4/round-000002-*")).read_bytes())
    kept = older.read_bytes()
    older.write_bytes(kept[:-1])
    there = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    with pytest.raises(UserError, match="no checkpoint of .* can be used"):
        resume(folder)
    assert {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()} == there
    older.write_bytes(kept)
    capsys.readouterr()
    resume(folder)
    why = {"bit": "is damaged", "gone": "is not there", "another client's": "is that of client 4"}[rot]
    told = capsys.readouterr().err
    assert f"round 3 {why}" in told and "The checkpoint of round 2 is taken instead." in told, told
    state = safetensors.torch.load_file(folder / "model.safetensors")
    assert all(torch.equal(state[k], v) for k, v in sequential(config).model().items())


@pytest.mark.slow
def test_a_damaged_memory_falls_back_as_a_torn_checkpoint_does(tmp_path, capsys):
    """The memory of the last round: the checkpoint before has one of its own."""
    config = replace(CONFIG, algorithm="scaffold", rounds=3, cohort=1.0, absent=0.0, out=str(tmp_path / "run"))
    folder = stopped(config, after=2)
    path = max(folder.glob("clients/client-3/round-*"))
    path.write_bytes(path.read_bytes()[:-1])
    resume(folder)
    said = f"{path}: the client's memory of round 2 is damaged"
    assert said in (told := capsys.readouterr().err) and "The checkpoint of round 1 is taken instead." in told
    state = safetensors.torch.load_file(folder / "model.safetensors")
    assert all(torch.equal(state[k], v) for k, v in sequential(config).model().items())


@pytest.fixture(scope="module")
def one_round(tmp_path_factory) -> Path:
    """The folder of a run that ended after one round."""
    out = tmp_path_factory.mktemp("one") / "run"
    return stopped(replace(CONFIG, algorithm="fedavg", rounds=2, cohort=1.0, absent=0.0, out=str(out)), after=1)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["bit", "half", "empty", "gone", "keys", "shape", "another"])
def test_rotten_data_are_named(one_round, tmp_path, how):
    path = one_round / "clients" / "client-3" / DATA
    header, data = wire.unpack(whole := path.read_bytes())
    rotten = {
        "bit": bytes([*whole[:-9], whole[-9] ^ 4, *whole[-8:]]),
        "half": whole[: len(whole) // 2],
        "empty": b"",
        "keys": wire.pack(header, {"x": data["x"], "z": data["y"], "name": data["name"]}),
        "shape": wire.pack(header, data | {"x": data["x"].flatten(1)}),
        "another": wire.pack(header._replace(run="another"), data),
    }
    if how != "gone":
        (tmp_path / DATA).write_bytes(rotten[how])
    config = replace(CONFIG, algorithm="fedavg", rounds=2, cohort=1.0, absent=0.0, out=str(one_round))
    text = wired.text_of(assemble(config), identity.digest(config, one_round))
    with pytest.raises(StoreError, match=f"{DATA}: the client's data is .*: remove it and resume"):
        Client.build(text, tmp_path)


@pytest.mark.slow
def test_rotten_data_end_a_run_with_one_sentence_or_are_left_out(one_round):
    path = one_round / "clients" / "client-3" / DATA
    path.write_bytes(path.read_bytes()[:-1])
    ended = cli("resume", one_round)
    assert ended.code == 2 and ended.err.count("\n") == 1 and f"{DATA}: the client's data is damaged" in ended.err
    assert cli("resume", one_round, "--on-bad-client", "skip").code == 0
    assert json.loads((one_round / "metrics.jsonl").read_text().splitlines()[-1])["skipped"] == 1


# --- one client, message by message ------------------------------------------------------------------------
@pytest.fixture(scope="module")
def client(tmp_path_factory) -> tuple[WiredClients, Client, list[bytes]]:
    """The clients of a run, one of them built from its text and folder alone, and the message of its first round."""
    experiment, folder = assemble(replace(CONFIG, algorithm="scaffold")), tmp_path_factory.mktemp("run")
    clients = WiredClients.open(experiment, folder, identity.digest(experiment.config), Wired(1))
    asked: list[bytes] = []
    clients.transport.processes = SimpleNamespace(ask=lambda folder, message: asked.append(message), close=lambda: None)  # type: ignore
    federated = experiment.federated
    federated.round(federated.start(), clients, Plan([2], frozenset(), 0.1))
    return clients, Client.build(wired.text_of(experiment, clients.run), clients.folder(2)), asked


def at(message: bytes, **header: Any) -> bytes:
    """The message with another header."""
    head, tensors = wire.unpack(message)
    return wire.pack(head._replace(**header), tensors)


def test_the_same_message_again_is_harmless(client):
    _, one, (first,) = client
    answers, remembered = set(), set()
    for _ in range(3):
        answers.add(one.answer(first))
        remembered.add(next(one.folder.glob("round-000000-*")).read_bytes())
    made = wire.unpack(next(iter(answers)))[0].memory
    second = at(first, round=1, accepted=0, memory=made)
    later = {one.answer(second) for _ in range(2)}
    assert len(answers) == len(remembered) == len(later) == 1 and answers != later
    assert (one.folder / f"round-000000-{made:08x}.message").read_bytes() in remembered


def test_exactly_what_can_be_asked_for_is_kept(client):
    _, one, (first,) = client
    made: dict[int, int] = {-1: 0}  # the memory that each round made last, by its checksum
    for path in one.folder.glob("round-*"):
        path.unlink()

    def kept() -> list[int]:
        return sorted(int(path.stem.split("-")[1]) for path in one.folder.glob("round-*"))

    def ask(round: int, accepted: int, older: int = -1, newer: int = -1) -> bytes:
        said = {"round": round, "accepted": accepted, "memory": made[accepted], "older": older, "newer": newer}
        answer = one.answer(at(first, **said))
        made[round] = wire.unpack(answer)[0].memory
        return answer

    ask(0, -1)
    ask(1, 0)
    (one.folder / "round-000007-00000000.message.tmp").write_bytes(b"torn")
    third = ask(2, 1, -1, 0)
    assert kept() == [0, 1, 2] and not list(one.folder.glob("*.tmp"))
    ask(3, 1, 0, 1)  # what it remembered of round 2 did not count, but nothing has counted since
    assert kept() == [0, 1, 2, 3]
    assert ask(2, 1, -1, 0) == third  # the server has fallen back
    ask(5, 3, 1, 1)
    assert kept() == [0, 1, 3, 5]  # 0 and 1 were needed when the memory of round 3 was made
    ask(6, 5, 3, 5)
    assert kept() == [1, 3, 5, 6]


def test_no_message_alone_removes_a_memory(client):
    """Whatever rounds it names, and though what it says of them fits together."""
    _, one, (first,) = client
    made = [0]
    for round in range(4):
        said = {"round": round, "accepted": round - 1, "memory": made[-1], "older": max(round - 3, -1)}
        answer = one.answer(at(first, **said, newer=max(round - 2, -1)))
        made.append(wire.unpack(answer)[0].memory)
    before = {path: path.read_bytes() for path in one.folder.glob("round-*")}
    forged = [{"round": 9, "accepted": 3}, {"round": 3, "accepted": 2, "number": 7.0}, {"round": 0}, {"round": 1 << 40}]
    forged += [{"round": 4, "accepted": 3, "older": 3, "newer": 3}, {"round": 3, "accepted": 2, "older": 2, "newer": 2}]
    for said in forged:
        one.answer(at(first, **said, memory=made[said.get("accepted", -1) + 1]))
    for said in [{"round": 5, "accepted": 4}, {"round": 4, "accepted": 3, "memory": 7}, {"round": 3, "accepted": 3}]:
        with pytest.raises(UserError):
            one.answer(at(first, **{"memory": made[-1]} | said))
    assert all(path.read_bytes() == data for path, data in before.items())


def test_what_is_not_for_this_client_is_refused(client, monkeypatch):
    """By the client itself, in a sentence, as bytes; it lives on, and nothing but bytes went through its pipe."""
    clients, one, (first,) = client
    wrong = [at(first, run="another"), at(first, operation="invent"), at(first, client=3), at(first, operation="embed")]
    inbox = deque([*wrong, first[:-1], b"", b"\x80\x04N.", first])
    outbox: list[bytes] = []

    def receive() -> bytes:
        if not inbox:
            raise EOFError
        return inbox.popleft()

    pipe = SimpleNamespace(send_bytes=outbox.append, recv_bytes=receive)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    serve(pipe, wired.text_of(assemble(replace(CONFIG, algorithm="scaffold")), clients.run), str(one.folder))
    *refused, answer = outbox
    words = [bytes(wire.unpack(m)[1]["text"].tolist()).decode() for m in refused]
    assert all(wire.unpack(m)[0].operation == REFUSED for m in refused)
    assert "of run another" in words[0] and "no operation 'invent'" in words[1]
    assert "has the number 2, and the message is for number 3" in words[2] and "no operation 'embed'" in words[3]
    assert len(words) == 7 and all("no whole message" in w for w in words[4:])
    made = wire.checksum(next(one.folder.glob("round-000000-*")).read_bytes())
    assert wire.unpack(answer)[0] == Header(clients.run, "train", 2, 0, memory=made, number=float(one.samples.size))


def test_a_client_has_its_own_data_alone(client):
    clients, one, _ = client
    x, y = clients.federation.samples(2).all()
    assert torch.equal(one.samples.pool[0], x) and torch.equal(one.samples.pool[1], y)
    assert one.name == clients.federation.names[2] and one.who == 2
    assert [path.name for path in clients.folder(2).parent.iterdir()] == [one.name]


def test_nothing_but_bytes_crosses(monkeypatch):
    """No object is pickled into a pipe; a process is given strings; a message is a header and safetensors."""

    def never(*_: Any) -> None:
        raise AssertionError("an object was pickled")

    messages: list[bytes] = []
    send, given = Connection.send_bytes, []
    monkeypatch.setattr(Connection, "send", never)
    monkeypatch.setattr(Connection, "recv", never)
    monkeypatch.setattr(ForkingPickler, "dumps", never)
    monkeypatch.setattr(ForkingPickler, "loads", never)
    monkeypatch.setattr(Connection, "send_bytes", lambda self, m: (messages.append(bytes(m)), send(self, m))[1])
    init = client_processes.ClientProcesses.__init__

    def watched(self, *arguments: Any) -> None:
        init(self, *arguments)
        context = self._pool._context
        self._pool._context = SimpleNamespace(
            Pipe=context.Pipe,
            Process=lambda target, args, daemon: (
                given.extend(args),
                context.Process(target=target, args=args, daemon=daemon),
            )[1],
        )

    monkeypatch.setattr(client_processes.ClientProcesses, "__init__", watched)
    config = replace(CONFIG, algorithm=RICH)
    assert same(run_config(config)[0], sequential(config))
    greetings = b"#CHALLENGE#", b"#WELCOME#", b"{sha256}"  # with which Python 3.14 begins with its own fork server
    messages = [m for m in messages if not m.startswith(greetings)]
    assert messages and all(wire.unpack(m)[0].operation == "train" for m in messages)
    assert given and {type(argument) for argument in given} == {str, Connection}


# --- the rest ----------------------------------------------------------------------------------------------
def test_a_pipeline_crosses_in_three_phases(tmp_path):
    """embed, train, embed_back, each to a client made anew: bitwise, and as many bytes, as in this process."""
    federated = federate(algorithm(pipeline(), name="pipeline"), mlp())
    data, work = clusters(), Work(3, None, 4)
    experiment: Any = SimpleNamespace(
        config=Config(), federated=federated, federation=data, training=data, work=work, dataset=None
    )
    remote = WiredClients.open(experiment, tmp_path, "0123456789abcdef", Wired(2))
    phases: list[str] = []

    def ask(folder: Path, message: bytes) -> bytes:
        phases.append(wire.unpack(message)[0].operation)
        about, samples = wire.unpack((folder / DATA).read_bytes())
        who = about.client
        mine = Client(folder, remote.run, wire.text(samples["name"]), who, data.samples(who), federated, work, 0)
        assert mine.answer(message) == (answer := mine.answer(message))
        return answer

    remote.transport.processes = SimpleNamespace(ask=ask, close=lambda: None)  # type: ignore[assignment]
    here = Clients(federated, data, work, 0, Sequential())
    one = two = federated.start()
    for t in range(3):
        plan = Plan([0, 2, 3, 4], frozenset({3}), 0.2)
        (one, a), (two, b) = federated.round(one, here, plan), federated.round(two, remote, plan)
        here.commit(t)
        remote.commit(t)
        assert torch.equal(one.params, two.params) and a.traffic == b.traffic and a.answered == b.answered
    assert phases[:9] == ["embed"] * 3 + ["train"] * 3 + ["embed_back"] * 3
    with pytest.raises(UserError, match="lacks the first phase"):
        (tmp_path / "clients" / "c0" / "phase.message").unlink()
        header = Header(remote.run, "embed_back", 0, 5, number=0.2)
        ask(tmp_path / "clients" / "c0", wire.pack(header, {"model": torch.zeros(3)}))


def test_objects_are_refused(tmp_path):
    x, y = torch.randn(60, 5).numpy(), torch.randint(0, 3, (60,)).numpy()
    settings: dict[str, Any] = {"lift": "wired", "clients": 3, "rounds": 1, "out": str(tmp_path / "run")}
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    loss = lambda outputs, y: torch.nn.functional.cross_entropy(outputs, y)
    metric = lambda outputs, y: (outputs.argmax(-1) == y).float()
    own = algorithm(Proximal(3.0), name="fedprox(mu=0.1)")
    objects = {"model": net, "data": (x, y), "loss": loss, "algorithm": own, "metric": metric}
    for culprit in objects:
        given = {culprit: objects[culprit], "split": "iid"}
        with pytest.raises(UserError, match=f"the {culprit} of this run are objects"):
            program(**given, **settings)
        assert not (tmp_path / "run").exists()


def test_pooled_data_have_no_clients():
    config = replace(CONFIG, algorithm="centralized", rounds=1)
    assert same(run_config(config)[0], sequential(config))


@pytest.mark.slow
def test_a_run_without_a_folder_leaves_none():
    result = run_config(replace(CONFIG, algorithm="scaffold", rounds=1))[0]
    home = result.clients.folder(0).parents[1]  # type: ignore[attr-defined]
    assert home.is_dir()
    del result
    gc.collect()
    assert not home.exists()


@pytest.mark.slow
def test_a_script_is_not_run_again_by_its_clients(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from apiece.experiment.launch import federate\n"
        "print('once')\n"
        "result = federate('softmax_regression', clients=3, rounds=1, steps='1', lift='wired')\n"
        "print(result.metrics[0]['answered'])\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["once", "3"] and done.stderr == ""


def test_any_name_is_a_folder(tmp_path):
    experiment = assemble(replace(CONFIG, algorithm="scaffold"))
    names = ["..", "a/b", "a.b", ".", "ä b", "plain_1"]
    training = replace(experiment.training, names=names)
    clients = WiredClients(replace(experiment, training=training, federation=training), tmp_path, "x", Wired(1))
    paths = [clients.folder(c) for c in range(6)]
    assert len(set(paths)) == 6 and all(p.parent == tmp_path / "clients" and p.name not in (".", "..") for p in paths)
    files.make_folder(paths[0])
