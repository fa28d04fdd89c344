"""What an own piece returns by mistake is one sentence: the piece, the slot, what it returned, what it must return."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from support.contract import every_piece
from torch import Tensor, nn

from apiece import Uniform, algorithm, check, federate
from apiece.algebra.piece import Piece
from apiece.algebra.returned import SLOTS
from apiece.algebra.trees import alike
from apiece.errors import UserError

pytestmark = pytest.mark.usefixtures("no_report")

Y = np.arange(60) % 3
X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
QUICK: dict[str, Any] = {"clients": 3, "rounds": 1, "steps": 2, "batch": 8, "drift": "none", "lift": "sequential"}
Wrong = Callable[[Any], Any]  # what is right -> what is returned instead of it

# types, shapes and structures; a number of Python, which torch would spread; nothing, where `return` was forgotten
WRONG: dict[str, Wrong] = {
    "None": lambda right: None,
    "0.5 (a float)": lambda right: 0.5,
    "a tensor of shape [3] and type float32": lambda right: torch.zeros(3),
    "a tensor of shape [] and type int64": lambda right: torch.tensor(3),
    "(None, None, None)": lambda right: (None, None, None),
}
OF_ANOTHER_TYPE = {"a tensor of shape [15] and type float64": lambda right: right.double()}


def vector(self: Piece, theta: Tensor) -> Tensor:
    return torch.zeros_like(theta)


# who returns it -> slots that return it
ANYTHING: dict[str, Callable[[Wrong], dict[str, Any]]] = {
    "Mine.complete": lambda wrong: {"complete": lambda self, space, setting, optimizer: wrong(self)},
    "Mine.doubt": lambda wrong: {"doubt": lambda self, share, server: wrong("")},
    "Mine.prepare": lambda wrong: {"prepare": lambda self, module: wrong(module)},
    "Mine.draws": lambda wrong: {"draws": lambda self, space: wrong(())},
    "Mine.objective": lambda wrong: {"objective": lambda self, view, loss: wrong(loss)},
    "the loss of Mine.objective": lambda wrong: {"objective": lambda self, view, loss: lambda *of: wrong(loss(*of))},
    "the rule of Mine.correct": lambda wrong: {"correct": lambda self, view: ((), lambda *of: wrong(of[:2]))},
    "Mine.report": lambda wrong: {"report": lambda self, view: wrong(view.end)},
    "Mine.upload": lambda wrong: {"upload": lambda self, view, message: wrong(message)},
    "Mine.learn": lambda wrong: {"learn": lambda self, memory, g, report, share: wrong((g, memory))},
    "Mine.log": lambda wrong: {"log": lambda self, memory, g, report, share: wrong({})},
    "the function of Mine.predict": lambda wrong: {"predict": lambda self, view: wrong},
}
LIKE_A_VECTOR: dict[str, Callable[[Wrong], dict[str, Any]]] = {
    "Mine.start": lambda wrong: {"start": lambda self, view, theta: wrong(theta)},
    "Mine.keep": lambda wrong: {"keep": lambda self, view, theta: wrong(theta)},
    "Mine.evaluate": lambda wrong: {"evaluate": lambda self, memory, theta: wrong(theta)},
    "Mine.personal": lambda wrong: {"personal": lambda self, view, theta: wrong(theta)},
    "the delta of Mine.upload": lambda wrong: {
        "upload": lambda self, view, message: message._replace(delta=wrong(message.delta))
    },
    "Mine.remember": lambda wrong: {"client_memory": vector, "remember": lambda self, view: wrong(view.client)},
    "Mine.settle": lambda wrong: {"server_memory": vector, "settle": lambda self, memory, *models: wrong(memory)},
}
MEMORIES: dict[str, Callable[[Wrong], dict[str, Any]]] = {
    "Mine.server_memory": lambda wrong: {"server_memory": lambda self, theta: wrong(theta)},
    "Mine.client_memory": lambda wrong: {"client_memory": lambda self, theta: wrong(theta)},
    "Mine.tell": lambda wrong: {"tell": lambda self, memory: wrong(memory)},
}
NO_TENSORS = {said: WRONG[said] for said in ("None", "0.5 (a float)", "(None, None, None)")}
TABLE = [
    (who, said, of[who](wrong))
    for of, wrongs in ((ANYTHING, WRONG), (LIKE_A_VECTOR, WRONG | OF_ANOTHER_TYPE), (MEMORIES, NO_TENSORS))
    for who in of
    for said, wrong in wrongs.items()
]


def mine(**slots: Any) -> Piece:
    return type("Mine", (Piece,), slots)()


def run(piece: Piece, **settings: Any) -> Any:
    return federate(nn.Linear(4, 3), (X, Y), algorithm(piece, name="mine"), **QUICK | settings)


# a slot catches a return that the engine meets elsewhere, a wrong return one that torch spreads or takes for a tree
@pytest.mark.parametrize(("who", "said", "slots"), TABLE, ids=[f"{who}: {said}" for who, said, _ in TABLE])
def test_a_wrong_return_is_one_sentence(who, said, slots):
    with pytest.raises(UserError, match=f"^{re.escape(who)} returned {re.escape(said)}: it must return [^\n]*[.]$"):
        run(mine(**slots))


def test_every_slot_is_in_the_table():
    slots = {who.partition("Mine.")[2] for who, _, _ in TABLE}
    named = {name for name, what in vars(Piece).items() if callable(what) and not name.startswith("__")}
    assert slots | {"observe"} == set(SLOTS) == named - {"fills"}


# lifts catch an error that vmap, a thread or a worker process makes another one of
@pytest.mark.parametrize("lift", ["threaded", "vectorized", pytest.param("processes", marks=pytest.mark.slow)])
def test_under_every_lift(lift):
    slots = {"server_memory": vector, "learn": lambda self, memory, g, report, share: (g, g[:3])}
    with pytest.raises(UserError, match=r"^Mine.learn returned \(.*\[15\].*\[3\].*\): it must return \(g, memory\)"):
        run(mine(**slots), lift=lift)
    with pytest.raises(UserError, match=r"^the rule of Mine.correct returned \(\(\), 0.5 \(a float\)\)"):
        run(mine(correct=lambda self, view: ((), lambda scratch, *rest: (scratch, 0.5))), lift=lift)


class Pair(NamedTuple):
    one: Tensor
    two: Tensor


@pytest.mark.parametrize(
    ("slots", "said"),
    [
        (
            {"learn": lambda self, memory, g, report, share: (memory, g)},
            r"Mine.learn returned \(\(\), a tensor of shape \[15\] and type float32\): it must return \(g, memory\), "
            r"each like the one that it is given: \(a tensor of shape \[15\] and type float32, \(\)\).",
        ),
        (
            {"server_memory": lambda self, theta: {"m": theta}, "settle": lambda self, memory, *of: {"n": memory["m"]}},
            "Mine.settle returned {'n': a tensor of .*}: it must return a memory like the one before, {'m': a .*}.",
        ),
        (
            {
                "client_memory": lambda self, theta: Pair(theta, theta),
                "remember": lambda self, view: tuple(view.client),
            },
            r"Mine.remember returned \(.*\): it must return a memory like the one before, Pair\(a tensor of .*\).",
        ),
        ({"report": lambda self, view: Uniform(0.5)}, r"Mine.report returned Uniform\(0.5 \(a float\)\): it must .*"),
        ({"report": lambda self, view: (Uniform(view.end), view.end)}, r"Mine.report returned \(Uniform\(a .*"),
        ({"predict": lambda self, view: view.end}, "Mine.predict returned a tensor of .* a function x -> scores, or.*"),
        (
            {"predict": lambda self, view: lambda x: view.task.outputs(view.end, x).repeat(1, 2)},
            r"the function of Mine.predict returned .*: it must return as many scores a sample as the model, \d+.",
        ),
        (
            {"predict": lambda self, view: lambda x: view.task.outputs(view.end, x)[:, 0]},
            r"the function of Mine.predict returned .*: it must return as many scores a sample as the model, \d+.",
        ),
        ({"log": lambda self, memory, g, *of: {"g": g}}, "Mine.log returned {'g': a tensor of .*single numbers by.*"),
        (
            {"objective": lambda self, view, loss: lambda theta, batch: loss(theta, batch).detach()},
            "the loss of Mine.objective returned a number that does not depend on theta: compute it from theta.*",
        ),
        (
            {"correct": lambda self, view: (view.start, lambda scratch, g, theta, batch: (scratch[:1], g))},
            r"the rule of Mine.correct returned \(a tensor of shape \[1\].*: it must return \(scratch, g\), each.*",
        ),
        ({"correct": lambda self, view: lambda *of: of[:2]}, r"Mine.correct returned a function: .*\(scratch, rule.*"),
        (
            {"correct": lambda self, view: ((), lambda g: g)},
            r"the rule of Mine.correct is called with \(scratch, g, theta, batch\): give it .*, not \(g\)\.",
        ),
        (
            {"correct": lambda self, view: ((), lambda scratch, g, theta, batch, *, rate: (scratch, g))},
            r"the rule of Mine.correct is called with .*, not \(scratch, g, theta, batch, \*, rate\)\.",
        ),
        (
            {"objective": lambda self, view, loss: lambda theta: loss(theta, None)},
            r"the loss of Mine.objective is called with \(theta, batch\): give it these parameters, not \(theta\)\.",
        ),
    ],
)
def test_what_is_nearly_right(slots, said):
    with pytest.raises(UserError, match=f"^{said}$"):
        run(mine(**slots))


def test_a_batch_that_is_changed_in_place_is_said():
    """Other pieces compute with the same batch."""
    to_zero = lambda self, view, loss: lambda theta, batch: loss(theta, (batch[0], batch[1].zero_()))
    half = lambda self, view: ((), lambda scratch, g, theta, batch: (scratch, g + 0 * batch[0].div_(2).sum()))
    for slots, who in (({"objective": to_zero}, "the loss of Mine.objective"), ({"correct": half}, "the rule of Mine")):
        with pytest.raises(UserError, match=f"{who}.* changes a tensor in place that it was given"):
            run(mine(**slots), lift="sequential")


def test_a_number_that_is_not_finite_is_said_with_the_slots_of_ones_own():
    nowhere = float("nan")
    with pytest.raises(UserError, match="became non-finite in round 1.*, or Mine.learn returned what is not finite; "):
        run(mine(learn=lambda self, memory, g, report, share: (nowhere * g, memory)))
    with pytest.raises(UserError, match="client 'client-0' became non-finite.*, or Mine.start or Mine.keep returned "):
        run(mine(start=lambda self, view, theta: nowhere * theta, keep=lambda self, view, theta: theta))


def test_the_contract_says_it_too():
    @dataclass(frozen=True)
    class Onward(Piece):
        @classmethod
        def neutral(cls) -> str:
            return "it is not asked for"

        def learn(self, memory: Any, g: Tensor, report: Any, share: float) -> Any:
            return 0.9 * memory + g

        def server_memory(self, theta: Tensor) -> Tensor:
            return torch.zeros_like(theta)

    with pytest.raises(UserError, match=r"^Onward.learn returned a tensor of shape \[53\].*: it must return \(g, me"):
        check(Onward())


# --- what a slot takes ------------------------------------------------------------------------------------------------
def test_other_parameters_are_refused_where_the_class_is_defined():
    with pytest.raises(UserError, match=r"^Short.learn takes \(self, memory, g\), but a round calls it with \(self"):

        class Short(Piece):
            def learn(self, memory: Any, g: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
                return g, memory

    with pytest.raises(UserError, match=r"^Hidden.start is 0.1 \(a float\), but 'start' is a slot: rename it.$"):

        @dataclass(frozen=True)
        class Hidden(Piece):
            start: float = 0.1  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]


def test_slots_are_filled_as_before():
    class Mixed:
        def keep(self, view: Any, theta: Tensor) -> Tensor:
            return theta[:3]

    class Mine(Mixed, Piece):
        """One slot comes from a class that is no piece."""

    class Other(Mine):
        def keep(self, view: Any, theta: Tensor) -> Tensor:
            return super().keep(view, theta=theta)

    assert Mine().fills("keep") and not Mine().fills("start", "learn") and Other.keep.__name__ == "keep"
    for piece in (Mine(), Other()):
        with pytest.raises(UserError, match=f"{type(piece).__name__}.keep returned a tensor of shape .3. and type "):
            run(piece)
    held = [getattr(kind, slot) for kind in every_piece() for slot in SLOTS if kind().fills(slot)]
    assert len(held) > 70 and all(hasattr(function, "slot") for function in held)


def test_trees_are_alike_where_structure_shapes_and_types_are():
    one, two = torch.zeros(2), torch.ones(2)
    assert alike({"a": one, "b": (two, ())}, {"b": (one, ()), "a": two}) and alike(Pair(one, two), Pair(two, one))
    assert alike(OrderedDict(b=one, a=two), {"a": one, "b": two}) and not alike(OrderedDict(a=one), [one])
    for other in ({"a": one}, {"a": one, "b": two}, {"a": one, "c": (two, ())}, {"a": one, "b": [two, ()]}, one):
        assert not alike(other, {"a": one, "b": (two, ())})


TREES: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]] = {
    "a list": (lambda x: [x], lambda tree: tree[0]),
    "an ordered dict": (lambda x: OrderedDict(b=x, a=x), lambda tree: tree["b"]),
    "lists in a tuple": (lambda x: ([x], {"x": [x, []]}), lambda tree: tree[1]["x"][0]),
}


@dataclass(frozen=True)
class Remembers(Piece):
    """g <- g + 0.1 the client's last step, remembered in a tree of this kind."""

    kind: str = ""

    def client_memory(self, theta: Tensor) -> Any:
        return TREES[self.kind][0](torch.zeros_like(theta)) if self.kind else torch.zeros_like(theta)

    def correct(self, view: Any) -> Any:
        last = TREES[self.kind][1](view.client) if self.kind else view.client
        return (), lambda scratch, g, theta, batch: (scratch, g + 0.1 * last)

    def remember(self, view: Any) -> Any:
        return TREES[self.kind][0](view.end - view.start) if self.kind else view.end - view.start


# kinds catch a container that is lost on the way, lifts one that is stacked or parted otherwise
@pytest.mark.parametrize("lift", ["sequential", "threaded", "vectorized"])
@pytest.mark.parametrize("kind", TREES)
def test_a_memory_is_a_tree_of_any_containers(kind, lift):
    settings = QUICK | {"rounds": 3, "lift": lift}
    ends = [
        federate(nn.Linear(4, 3), (X, Y), algorithm(Remembers(of), name="remembers"), **settings).server.params
        for of in ("", kind)
        if torch.manual_seed(0)
    ]
    assert torch.equal(*ends)
