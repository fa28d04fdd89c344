"""Objects and functions where a setting has text: the same run bit by bit, and one sentence for what is none."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from support.outer import cli, sentence
from support.recipes import Stop, result, stopping

import apiece
from apiece import federate
from apiece.algebra.optim import AdamW, adam
from apiece.algebra.server_optim import Adam, Momentum
from apiece.config.assemble import assemble
from apiece.config.settings import Config
from apiece.data.batches import Augmentation
from apiece.errors import UserError

SMALL: dict[str, Any] = {"clients": 4, "cohort": 0.5, "rounds": 4, "batch": 8, "steps": 2, "lr": 0.05}
SMALL |= {"model": "mlp(hidden=[8])"}
SAME: dict[str, tuple[Any, Any]] = {
    "optimizer": ("sgd(momentum=0.9)", apiece.Sgd(0.9)),
    "server": ("momentum(0.5)", Momentum(0.5)),
    "schedule": ("exponential(0.5)", lambda t, rounds: 0.5**t),
    "augment": ("flip", Augmentation(crop=0.0)),
    "weighting": ("uniform", lambda samples: 3.0),
    "steps": ("3", lambda name: 3),
    "lr": (0.02, lambda name: 0.02),
    "sampling": ("bernoulli", lambda t, rng, count: np.flatnonzero(rng.random(count) < 0.5)),
}
ALL = {"cohort": 1.0}  # a function that samples says how many, too

pytestmark = pytest.mark.usefixtures("no_report")


def made(**settings: Any) -> Any:
    return federate(**(SMALL | settings))


@pytest.mark.parametrize("name", SAME)
def test_an_object_is_what_its_text_is(name):
    text, thing = SAME[name]
    one, two = made(**{name: text}), made(**{name: thing}, **(ALL if name == "sampling" else {}))
    assert torch.equal(one.server.params, two.server.params)
    assert not torch.equal(one.server.params, made().server.params)


FAILING = [
    ("schedule", len, "schedule fails for round 0 of 4: TypeError: "),
    ("schedule", lambda t, rounds: None, "schedule fails for round 0 of 4: TypeError: "),
    ("weighting", len, "weighting has no weight for a client with 360 training samples: TypeError: "),
    ("augment", lambda x: x[:, :, :3], "or what it makes of a batch is none for the model: RuntimeError: mat1"),
    ("augment", lambda x: x.nothing, "none for the model: AttributeError: "),
    ("drift", np.array([1, 2]), "drift=array([1, 2]) is not allowed"),
    ("metrics", np.array([1, 2]), "a metric is array([1, 2]), which cannot be called"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "thing", "said"), FAILING)
def test_a_function_that_fails_is_said_before_the_first_round(name, thing, said):
    with pytest.raises(UserError) as caught:
        made(split="iid", **{name: thing})
    assert said in str(caught.value), str(caught.value)


def test_steps_by_client():
    counts = [1, 2, 3, 0]
    by_name = {f"client-{i}": count for i, count in enumerate(counts)}
    series = pandas.Series(by_name)[::-1]  # by name, whatever its order
    for steps in (counts, by_name, by_name.__getitem__, np.array(counts), torch.tensor(counts), series):
        assert made(cohort=1.0, rounds=1, steps=steps).metrics[-1]["steps"] == sum(counts)


def test_a_pure_function_augments():
    x, y = torch.randn(80, 6), torch.arange(80) % 3
    given = {"data": (x, y), "clients": 4, "rounds": 2, "steps": 2, "batch": 8}
    functions = ({}, {"augment": lambda x: x}, {"augment": lambda x: -x})
    plain, same, other = (federate(**given, **function) for function in functions)
    assert torch.equal(plain.server.params, same.server.params)
    assert not torch.equal(plain.server.params, other.server.params)


def test_adam_on_clients_and_on_the_server():
    assert assemble(Config(optimizer="adam", clients=4)).federated.setup.client == adam() == AdamW(weight_decay=0.0)
    assert assemble(Config(server="adam(lr=0.01)", clients=4)).federated.setup.server == Adam(lr=0.01)


def test_a_folder_says_it_and_goes_on_from_the_program_alone(tmp_path: Path):
    objects = {name: thing for name, (_, thing) in SAME.items() if name != "augment"}
    whole, folder = tmp_path / "whole", tmp_path / "run"
    objects |= ALL
    made(out=str(whole), **objects)
    with pytest.raises(Stop):
        made(out=str(folder), on_round=stopping(2), **objects)
    text = (folder / "run.toml").read_text()
    assert all(f'{name} = "your own"' in text for name in objects if name not in ALL)
    ended = cli("resume", folder)
    assert ended.code == 2 and "this run's optimizer came from a program" in ended.err
    again = cli("run", "--config", folder / "run.toml", "--lr", 0.1, "--out", tmp_path / "again")  # which replaces one
    sentence(again, "this run's optimizer came from a program")
    made(out=str(folder), resume=True, **objects)
    assert result(folder) == result(whole)
    with pytest.raises(UserError, match="another configuration .*optimizer is your own there and sgd here"):
        made(out=str(folder), resume=True)
    with pytest.raises(UserError, match="schedule of a program's own.*keep 4"):
        made(out=str(folder), resume=True, **(objects | {"rounds": 5}))


def test_a_function_chooses_cohorts_of_any_size(tmp_path: Path):
    """That of a fixed size is the built-in one bit by bit; sizes that vary go on, also under absence and fast lifts."""
    same = made(cohort=1.0, sampling=lambda t, rng, count: rng.choice(count, 2, replace=False))
    assert torch.equal(same.server.params, made().server.params)
    settings = ALL | {"sampling": lambda t, rng, count: range(1 + t % count), "absent": 0.3, "algorithm": "scaffold"}
    settings["lift"] = "vectorized"
    whole, folder = tmp_path / "whole", tmp_path / "run"
    made(out=str(whole), **settings)
    with pytest.raises(Stop):
        made(out=str(folder), on_round=stopping(2), **settings)
    assert [info["cohort"] for info in made(out=str(folder), resume=True, **settings).metrics] == [1, 2, 3, 4]
    assert result(folder) == result(whole)


def test_places_are_among_those_that_may_take_part():
    ran = made(**ALL, unseen=2, sampling=lambda t, rng, count: [count - 1], lr=[1.0, 2.0, 3.0, 4.0], drift="all")
    assert ran.clients.touched() == [ran.experiment.federation.participants[-1]]


ODD = count(0)
WRONG = {
    "torch's": ({"optimizer": torch.optim.Adam}, "torch's Adam, which holds the parameters of one model"),
    "a class": ({"optimizer": apiece.Sgd}, "optimizer is the class Sgd: give an instance"),
    "of torch": ({"optimizer": torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)}, "torch's SGD, which holds"),
    "no optimizer": ({"server": "momentum(0.5)".split}, "server is .* no optimizer on vectors"),
    "no function": ({"schedule": [0.1, 0.2]}, "schedule is .* a function of the round"),
    "a short list": ({"steps": [1, 2]}, "steps has 2 numbers, for 4 clients"),
    "a client left out": ({"steps": {"client-0": 1}}, "no number for client 'client-1'"),
    "half a step": ({"steps": lambda name: 0.5}, "steps gives 0.5 for client"),
    "no weight": ({"weighting": lambda n: "a"}, "weighting has no weight for a client with .*: ValueError: could not"),
    "a weight of NaN": ({"weighting": lambda n: float("nan")}, "weighting gives nan for a client with .* 0 or more"),
    "a weight below 0": ({"weighting": lambda n: -1.0}, "weighting gives -1 for a client with .* finite number"),
    "no weight at all": ({"weighting": lambda n: 0}, "weighting gives 0 for every client"),
    "two servers": ({"server": Momentum(), "algorithm": "fedavgm"}, "both decide the server's optimizer"),
    "wired": ({"optimizer": apiece.Sgd(), "lift": "wired"}, "the optimizer of this run are objects of a program"),
    "pooled": ({"steps": lambda name: 2, "algorithm": "centralized"}, "centralized has one client"),
    "nobody": (ALL | {"sampling": lambda t, rng, count: []}, r"sampling gives \[\] in round 1: .* from 0 to 3"),
    "twice": (ALL | {"sampling": lambda t, rng, count: [0, 0]}, "one or more different whole numbers"),
    "too many": (ALL | {"sampling": lambda t, rng, count: [count]}, r"sampling gives \[4\]"),
    "a mask": (ALL | {"sampling": lambda t, rng, count: torch.tensor([True, False])}, r"gives \[True, False\]"),
    "names": (ALL | {"sampling": lambda t, rng, count: ["client-0"]}, "sampling gives .*client-0"),
    "one number": (ALL | {"sampling": lambda t, rng, count: 2}, "sampling fails in round 1: TypeError"),
    "two arguments": (ALL | {"sampling": lambda t, rng: [0]}, "sampling fails in round 1: TypeError"),
    "a cohort, too": ({"sampling": lambda t, rng, count: [0]}, "says how many clients take part: leave cohort out"),
    "its own chance": (ALL | {"sampling": lambda t, rng, count: [next(ODD)]}, "other clients when it is called again"),
}


@pytest.mark.parametrize("settings, said", WRONG.values(), ids=WRONG)
def test_what_is_none_is_refused(settings, said):
    with pytest.raises(UserError, match=said):
        made(**settings)


class Counting(torch.nn.Linear):
    """A module that says how many clients it has seen: none, and so it is false."""

    def __len__(self) -> int:
        return 0


def test_a_module_or_a_loss_that_is_false_is_taken():
    x, y = torch.randn(30, 4).numpy(), torch.randn(30, 2).numpy()
    loss = torch.nn.ModuleList()
    loss.forward = torch.nn.functional.l1_loss  # type: ignore[method-assign]
    module = Counting(4, 2)
    result = federate(module, (x, y), loss=loss, clients=3, rounds=1, steps=1, split="iid")
    assert not module and result.experiment.module is module
    assert not loss and result.experiment.federated.setup.task.loss is loss
