"""Messages that changed on their way or were made up: refused by name, and nothing is kept of them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from mutations import ALGORITHMS, CHANGES, GOOD, Scene, play
from support import tiers
from support.wired import CONFIG, sequential

from apiece.config.assemble import assemble
from apiece.engine import messages
from apiece.engine.clients import BadClient, Clients
from apiece.engine.state import Plan
from apiece.experiment import identity, lifecycle
from apiece.experiment.launch import resume, run_config
from apiece.experiment.run import execute
from apiece.lifts.lift import Sequential
from apiece.wired.client import FAILED, Client
from apiece.wired.processes import ClientProcesses

EVERYONE = replace(CONFIG, algorithm="scaffold", rounds=3, cohort=1.0, absent=0.0, eval_every=9, steps="2")


# an algorithm catches tensors of its own messages that are taken unchecked
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", tiers.but(("scaffold", "pefll(embedding=mlp, size=S, lambda_h=0.1)"), ALGORITHMS))
def test_changed_messages_are_refused_or_make_no_difference(algorithm, tmp_path):
    counted = play(Scene(algorithm, tmp_path), 4 * len(CHANGES), random.Random(algorithm))
    bad = {key: n for key, n in counted.items() if key[2] not in GOOD}
    assert not bad
    accidents = {key for key in counted if key[1] in ("flipped", "cut", "replayed")}
    assert {said for *_, said in accidents} == {"refused"}


# --- one answer ----------------------------------------------------------------------------------------------------
Change = Callable[
    [bytes, bytes], bytes
]  # (client 3's answer of round 2, client 2's) -> what the server gets of client 3


def tensors(change: Callable[[dict], dict], **header: Any) -> Change:
    def changed(answer: bytes, _: bytes) -> bytes:
        head, said = messages.unpack(answer)
        return messages.pack(head._replace(**header), change(said))

    return changed


def nan(name: str) -> Change:
    return tensors(lambda said: said | {name: said[name].index_fill(0, torch.tensor([0]), float("nan"))})


WRONG: dict[str, tuple[Change, str]] = {
    "nan": (nan("delta"), "its tensor 'delta' holds a number that is not finite"),
    "nan in a report": (nan("report.0"), "its tensor 'report.0' holds a number that is not finite"),
    "weight nan": (tensors(dict, number=float("nan")), "its weight is nan where [0-9]+ is expected"),
    "weight inf": (tensors(dict, number=float("inf")), "its weight is inf where [0-9]+ is expected"),
    "weight -5": (tensors(dict, number=-5.0), "its weight is -5 where [0-9]+ is expected"),
    "weight 1e300": (tensors(dict, number=1e300), "its weight is 1e\\+300 where [0-9]+ is expected"),
    "a smaller weight": (tensors(dict, number=1.0), "its weight is 1 where [0-9]+ is expected"),
    "another's": (lambda _, other: other, "its client is 2 where 3 is expected"),
    "missing": (tensors(lambda said: {"delta": said["delta"]}), r"it holds the tensors \['delta'\] where \['buffers'"),
    "shape": (
        tensors(lambda said: said | {"delta": said["delta"][1:]}),
        r".* float32 \[309\] where float32 \[310\]",
    ),
    "type": (tensors(lambda said: said | {"delta": said["delta"].double()}), "its tensor 'delta' is float64"),
    "round": (tensors(dict, round=0), "its round is 0 where 3 is expected"),
    "operation": (tensors(dict, operation="embed"), "its operation is 'embed' where 'train' is expected"),
    "memory": (tensors(dict, accepted=2), "its accepted is 2 where -1 is expected"),
    "run": (tensors(dict, run="another"), "its run is 'another' where"),
    "bit": (lambda answer, _: answer[:-1] + bytes([answer[-1] ^ 1]), "these [0-9]+ bytes are no whole message"),
    "nothing": (lambda *_: b"", "these 0 bytes are no whole message"),
}


@pytest.fixture(scope="module")
def scene(tmp_path_factory) -> Scene:
    return Scene("scaffold", tmp_path_factory.mktemp("scene"))


@pytest.mark.parametrize("how", WRONG)
def test_an_answer_that_does_not_fit_is_one_sentence_and_nothing_is_kept(scene, how):
    (*_, two, three), (change, why) = scene.now, WRONG[how]
    asked = messages.unpack(three.message)[0]
    with pytest.raises(BadClient, match=f"^client 'client-3' sent what is no answer to 'train' in round 4, as {why}"):
        scene.taken(asked, change(three.answer, two.answer))
    assert scene.taken(asked, three.answer)[0]


# --- in a run ------------------------------------------------------------------------------------------------------
@pytest.fixture
def meddle(monkeypatch) -> Callable[[Change | None], None]:
    """Clients in this process, and a change of what client 3 answers in round 2."""
    built: dict[Path, Client] = {}
    change: list[Change | None] = [None]
    last = [b""]

    def ask(self: ClientProcesses, folder: Path, message: bytes) -> bytes:
        built[folder] = built.get(folder) or Client.build(self.text, folder)
        answer, header = built[folder].answer(message), messages.unpack(message)[0]
        if change[0] and (header.client, header.round) == (3, 1):
            return change[0](answer, last[0])
        last[0] = answer if header.client == 2 else last[0]
        return answer

    monkeypatch.setattr(ClientProcesses, "ask", ask)
    return lambda new: change.__setitem__(0, new)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["nan", "weight 1e300"])
def test_the_client_is_named_and_the_last_checkpoint_is_from_before_it(tmp_path, meddle, how):
    config = replace(EVERYONE, workers=1, out=str(tmp_path / "run"))
    change, why = WRONG[how]
    meddle(change)
    with pytest.raises(BadClient, match=f"client 'client-3' sent what is no answer to 'train' in round 2, as {why}"):
        execute(assemble(config), Path(config.out))
    found = lifecycle.newest(Path(config.out), identity.digest(config, Path(config.out)), print)
    assert found.number == 1 and all(bool(leaf.isfinite().all()) for leaf in found.tensors.values())
    meddle(None)
    resume(Path(config.out))
    state = safetensors.torch.load_file(Path(config.out) / "model.safetensors")
    assert all(torch.equal(state[k], v) for k, v in sequential(config).model().items())


@pytest.mark.parametrize("how", ["nan", "another's"])
def test_such_a_client_is_left_out_of_the_round_and_counted(meddle, how):
    meddle(WRONG[how][0])
    config = replace(EVERYONE, workers=1, on_bad_client="skip")
    result = run_config(config)[0]
    assert [(info["answered"], info["skipped"]) for info in result.metrics] == [(6, 0), (5, 1), (6, 0)]
    experiment = assemble(replace(config, lift="sequential"))
    clients = Clients(experiment.federated, experiment.training, experiment.work, config.seed, Sequential())
    server = experiment.federated.start()
    for t in range(3):
        silent = frozenset({3} if t == 1 else ())
        server, _ = experiment.federated.round(server, clients, Plan([0, 1, 2, 3, 4, 5], silent, config.lr))
        clients.commit(t)
    assert torch.equal(server.params, result.server.params)


def test_what_fails_in_a_client_is_named_with_its_place(meddle):
    """The whole traceback is the cause."""
    said = "Traceback (most recent call last):\n  File ...\nValueError at piece.py:3: too bad."

    def failed(answer: bytes, _: bytes) -> bytes:
        return messages.pack(messages.Header("", FAILED, -1, -1), {"text": messages.letters(said)})

    meddle(failed)
    with pytest.raises(BadClient, match="'client-3' failed in round 2 with ValueError at piece.py:3: too bad: ") as met:
        run_config(replace(EVERYONE, workers=1))
    assert str(met.value.__cause__) == said


# --- a run without a folder ----------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_killed_run_without_a_folder_leaves_no_samples(tmp_path):
    """SIGKILL of the run alone; what it had of clients' samples is gone soon after."""
    code = "import sys; from apiece.cli import main; main(sys.argv[1:])"
    words = "run --lift wired --clients 40 --rounds 1000 --steps 1 --model softmax_regression".split()
    where: dict[str, Any] = {"env": os.environ | {"TMPDIR": str(tmp_path)}, "cwd": tmp_path}
    run = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.DEVNULL, **where)

    def soon(happens: Callable[[], bool]) -> bool:
        began = time.monotonic()
        while not (done := happens()) and time.monotonic() - began < 60:
            time.sleep(0.02)
        return done

    try:
        assert soon(lambda: bool(list(tmp_path.glob("apiece-*/clients/*/data.message")) or run.poll()))
    finally:
        run.kill()
        run.wait()
    assert run.returncode == -signal.SIGKILL
    assert soon(lambda: not list(tmp_path.glob("apiece-*")))
