"""Laws 1, 2, 8, 9 and 10 by the contract: every piece there is, every named algorithm, and their compositions."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from support import tiers
from support.contract import brief, every_piece
from support.subjects import held, normed

from apiece import federate
from apiece.algebra.composition import Alternate, Cohort, Period, Server, StepSize, algorithm
from apiece.algebra.draws import Draw
from apiece.algebra.message import Uniform
from apiece.algebra.optim import AdamW, Sgd
from apiece.algebra.periods import NEVER
from apiece.algebra.piece import Piece
from apiece.algebra.returned import SLOTS
from apiece.algebra.server_optim import Adagrad, Adam, Descent, Momentum, Yogi
from apiece.algebra.slots import misspelled
from apiece.contract import Report, check
from apiece.contract.comparing import TOLERANCE
from apiece.errors import UserError
from apiece.experiment.folders import say_once
from apiece.language import algorithms as named
from apiece.pieces.relaxed_init import RelaxedInit
from apiece.pieces.scaffold import Scaffold


def lively(kind: type[Piece]) -> Piece:
    """A value that does something: the defaults, numbers halved where these are the neutral ones."""
    piece, declared = kind(), kind.neutral()
    if isinstance(declared, str) or piece != declared[0]:
        return piece
    numbers = {f.name: getattr(piece, f.name) for f in fields(piece) if isinstance(getattr(piece, f.name), float)}
    return replace(piece, **{name: value / 2 if value else 0.5 for name, value in numbers.items()})


COMPOSED = {
    "scaffold + relaxed_init": named.scaffold() + named.relaxed_init(0.1),
    "scaffold + relaxed_init(delta)": named.scaffold() + named.relaxed_init(0.1, "delta"),
    "fedals(redrawn) + scaffold": named.fedals(2) + named.scaffold(),
    "fedals(held) + scaffold": named.fedals(2, cohort="held") + named.scaffold(),
    "fedals + relaxed_init": named.fedals(2) + named.relaxed_init(0.1),
    "fedals + relaxed_init(delta, current)": named.fedals(3) + named.relaxed_init(0.1, "delta", "current"),
    "fedprox + relaxed_init": named.fedprox(0.1) + named.relaxed_init(0.1),
    "scaffold_p + relaxed_init": named.scaffold_p(outer_personal=0.5, outer_shared=0.8, inner_personal=0.3)
    + named.relaxed_init(0.1),
    "fedals + fedavg_p": named.fedals(2) + named.fedavg_p("2.bias", outer_personal=0.5) + named.scaffold(),
    "everything": algorithm(
        Scaffold(),
        RelaxedInit(0.1, "delta"),
        *named.fedprox(0.1).pieces,
        *named.fedavg_p(outer_personal=0.5).pieces,
        Period("0.weight", 2),
        Period("0.bias", 3),
        Period("2.bias", NEVER),
        StepSize("0.*", 0.5),
        Cohort("held"),
        name="everything",
    ),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "adamw": {"client": AdamW(weight_decay=0.1)},
    "kept adamw": {"client": AdamW(), "optimizer_state": "kept", "clip": None},
    "kept momentum": {"client": Sgd(0.9), "optimizer_state": "kept"},
    "server momentum": {"server": Momentum(), "weighting": "uniform"},
    "server adam": {"server": Adam(lr=0.03)},
    "watched": {"watch": frozenset({"drift", "divergence"})},
}


# a piece catches a slot of its own that breaks a law
@pytest.mark.slow
@pytest.mark.parametrize("kind", every_piece(), ids=lambda kind: kind.__name__)
def test_every_piece(kind):
    for piece in {brief(kind()), brief(lively(kind))}:
        report = check(piece)
        assert report.vectorized < TOLERANCE and report.permuted < TOLERANCE and len(report.neutral) == 1


def test_a_method_that_is_nearly_a_slot_is_named():
    class Onward(Piece):
        def lern(self, memory: Any, g: torch.Tensor, report: Any, share: float) -> Any:
            return 2 * g, memory

    with pytest.raises(AssertionError, match="Onward.lern is no slot, and nothing calls it; did you mean 'learn'?"):
        check(Onward())
    with pytest.raises(UserError, match="did you mean 'learn'. Give it that name, or one that begins with _"):
        algorithm(Onward(), name="onward")
    class Swapped(Piece):
        def strat(self, view: Any, theta: torch.Tensor) -> torch.Tensor:
            return theta

    with pytest.raises(UserError, match="Swapped.strat is no slot, and nothing calls it; did you mean 'start'?"):
        algorithm(Swapped(), name="swapped")
    assert not [kind for kind in every_piece() if misspelled(kind())]


def test_a_piece_whose_methods_are_no_slots_is_named():
    class Softer(Piece):
        def loss(self, view: Any, loss: Any) -> Any:
            return loss

    for refuses in (check, lambda piece: algorithm(piece, name="softer")):
        with pytest.raises((AssertionError, UserError), match="Softer fills no slot, so nothing calls its loss: name"):
            refuses(Softer())


def test_a_decision_by_a_number_of_many_clients_is_told_in_words_of_its_own():
    class Newer(Piece):
        reads = frozenset({"fresh"})

        @classmethod
        def neutral(cls) -> str:
            return "a test"

        def objective(self, view: Any, loss: Any) -> Any:
            return lambda theta, batch: loss(theta, batch) if view.fresh else 2 * loss(theta, batch)

    with pytest.raises(AssertionError, match=r"Newer.objective fails .* chooses for each client, and .* is one-hot\.$"):
        check(Newer())


def test_what_a_piece_reads_may_be_any_set():
    class Returning(Piece):
        reads = {"model"}  # type: ignore[assignment]  # noqa: RUF012

        @classmethod
        def neutral(cls) -> str:
            return "none, for a test"

        def start(self, view: Any, theta: torch.Tensor) -> torch.Tensor:
            return (theta + view.model) / 2

    assert check(Returning()).changes


def test_pieces_are_found():
    assert {"Scaffold", "RelaxedInit", "Proximal", "OuterStep"} <= {kind.__name__ for kind in every_piece()}


# a name catches parts that break a law together, periods and optimizers among them
@pytest.mark.parametrize("name", tiers.but(("fedavg", "scaffold_p", "fedals", "fedcog", "pefll", "ditto"), named.NAMED))
def test_every_named_algorithm(name):
    algorithm = getattr(named, name)()
    held((name,), replace(algorithm, pieces=tuple(brief(piece) for piece in algorithm.pieces)))


@pytest.mark.slow
@pytest.mark.parametrize("subject", [named.fedbn(), named.fedals(2), named.scaffold()], ids=lambda a: a.name)
def test_buffers_pass_the_contract_too(subject):
    assert check(subject, normed).vectorized < TOLERANCE


@pytest.mark.slow
def test_fedbn_is_held_to_it_on_norm_layers():
    assert held(("fedbn",), named.fedbn()).neutral == ("Period(which='norm', every=1): fedavg",)
    with pytest.raises(UserError, match="norm"):
        check(named.fedbn())


# a sum catches a slot that one piece fills over another
@pytest.mark.slow
@pytest.mark.parametrize("name", tiers.but(("fedals(held) + scaffold", "everything"), COMPOSED))
def test_compositions(name):
    check(COMPOSED[name])


# settings catch a state that is not kept or not stacked, sums who else reads it
@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("name", ["scaffold + relaxed_init", "fedals(redrawn) + scaffold", "everything"])
def test_compositions_under_other_optimizers(name, settings):
    check(COMPOSED[name], **settings)


@pytest.mark.slow
@pytest.mark.parametrize("server", [Descent(0.5), Momentum(0.5, 0.7), Adam(), Yogi(), Adagrad()], ids=repr)
def test_server_optimizers(server):
    assert isinstance(check(algorithm(Scaffold(), Period("body", 2), Server(server), name="server")), Report)


# --- the contract catches what it is for ----------------------------------------------------------------------------
class Good(Piece):
    """A third party's: noise drawn once a step, a number remembered, a number reported."""

    @classmethod
    def neutral(cls):
        return "its noise has no size"

    def doubt(self, share, server):
        return f"{100 * share:.0f} % of the clients are few."

    def draws(self, space):
        return (Draw("noise", (space.size,), each="step"),)

    def client_memory(self, theta):
        return {"visits": torch.zeros((), dtype=theta.dtype)}

    def server_memory(self, theta):
        return torch.zeros((), dtype=theta.dtype)

    def correct(self, view):
        def rule(step, g, theta, batch):
            return step + 1, g + 0.01 * view.draws["noise"][0] * (1 + view.client["visits"])

        return torch.zeros((), dtype=view.sent.dtype), rule

    def report(self, view):
        return Uniform(view.client["visits"])

    def remember(self, view):
        return {"visits": view.client["visits"] + 1}

    def learn(self, memory, g, report, share):
        return g, memory + report.x


class Undeclared(Piece):
    pass


class NotNeutral(RelaxedInit):
    @classmethod
    def neutral(cls):
        return cls(1e-3), "fedavg"


class Counts(Good):
    """State in the piece, not in the round."""

    seen = [0]

    def keep(self, view, theta):
        self.seen[0] += 1
        return theta + 1e-4 * self.seen[0]


class Overwrites(Good):
    """Changes the samples, which it finds in the view, as it trains."""

    def keep(self, view, theta):
        view.data.pool[0].mul_(0.999)
        return theta


class ByNumber(Good):
    """Depends on where a client stands in the list."""

    def keep(self, view, theta):
        return theta + 1e-3 * torch.as_tensor(view.who).to(theta.dtype)


class ByPadding(Good):
    """Reads the common length to which a lift pads a client's steps, where its own number is meant."""

    def keep(self, view, theta):
        return theta + 1e-3 * len(view.batches)


class ByPlan(Good):
    """The same with the client's own number: right wherever clients are, stacked or alone."""

    def keep(self, view, theta):
        return theta + 1e-3 * view.planned


class Twice(Good):
    """Trains a second time on the round's batches, given by name: as many steps as the first time."""

    def keep(self, view, theta):
        return view.descend(theta, batches=view.batches)


@dataclass(frozen=True)
class Hidden(Good):
    """Remembers in the process, not in the row: lost at a resume."""

    @property
    def memory(self) -> dict[int, float]:
        return MEMORY

    def server_memory(self, theta):
        MEMORY.clear()  # a new process
        return super().server_memory(theta)

    def learn(self, memory, g, report, share):
        rounds = int(memory)
        total = MEMORY.setdefault(rounds, sum(MEMORY.values()) + 1.0)
        return g * (1 + 0.01 * total), memory + 1


MEMORY: dict[int, float] = {}
BROKEN = [
    (Undeclared, "law 2"),
    (NotNeutral, "law 2"),
    (Counts, "law 1|law 8"),
    (Overwrites, "law 8 .a round changed the data"),
    (ByNumber, "law 10"),
    (ByPadding, "law 1 \\(vectorized\\).*len\\(view.batches\\).*view.planned"),
    (Hidden, "law 9"),
]


@pytest.mark.slow
def test_a_third_partys_piece_passes():
    assert check(Good()).neutral == ("Good: none, for its noise has no size",)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ByPlan, Twice])
def test_a_piece_that_asks_how_many_steps_passes(kind):
    assert check(kind()).vectorized < 1e-12


@pytest.mark.parametrize("kind, law", BROKEN, ids=[kind.__name__ for kind, _ in BROKEN])
def test_a_broken_piece_is_named(kind, law):
    with pytest.raises(AssertionError, match=law):
        check(kind())


@pytest.mark.parametrize("slot", SLOTS)
def test_a_slot_that_raises_is_named(slot):
    def broken(self, *given):
        raise RuntimeError("it broke")

    kind = type("Breaks", (Piece,), {slot: broken, "neutral": classmethod(lambda cls: "it breaks")})
    with pytest.raises(AssertionError, match=rf"Breaks\.{slot} fails on .*: RuntimeError: it broke\.$"):
        check(kind())


class Wavers(Good):
    """Says another thing each time."""

    said: list[str] = []

    def doubt(self, share, server):
        self.said.append("few")
        return " ".join(self.said)


def test_a_doubt_repeats():
    with pytest.raises(AssertionError, match="law 8 .the slot `doubt` does not repeat"):
        check(Wavers())


class Shrinks(Good):
    """Changes the samples of all clients, which it finds in the view."""

    def personal(self, view, theta):
        view.data.pool[0].mul_(0.9)
        return theta


class Multiplies(Good):
    """Changes the model that it is given to predict with, which is the server's."""

    def personal(self, view, theta):
        return theta.mul_(0.9)


def test_a_model_that_a_slot_changes_in_place_is_refused_where_it_is_called():
    with pytest.raises(UserError, match="Multiplies.personal changes a tensor in place that it was given"):
        check(Multiplies())


IN_PLACE = {  # what a piece may change by mistake, and in which slot
    "report": lambda view: view.end.mul_(0.5),
    "remember": lambda view: view.client["visits"].add_(1),
    "upload": lambda view, message: message.delta.mul_(0.5),
    "correct": lambda view: view.client["visits"].add_(1),
    "start": lambda view, theta: view.sent.mul_(0.5),
    "keep": lambda view, theta: view.sent.mul_(0.999),
}


@pytest.mark.parametrize("slot", IN_PLACE)
def test_what_a_view_holds_is_not_changed_in_place(slot):
    """By the contract, and in a run, where it would change what other pieces see."""

    def filled(self, *given):
        IN_PLACE[slot](*given)
        return getattr(Good, slot)(self, *given)

    kind = type("Writes", (Good,), {slot: filled, "__doc__": "Writes where it reads."})
    said = f"Writes.{slot} changes a tensor in place that it was given"
    with pytest.raises(UserError, match=said):
        check(kind())
    with pytest.raises(UserError, match=said):
        federate("softmax_regression", "digits", algorithm(kind(), name="writes"), clients=3, rounds=2, steps=1)


RULES = {  # what a rule changes by mistake; a scratch changes in steps, too, that only pad a stacked client's
    "gradient": lambda self, view: ((), lambda scratch, g, *_: (scratch, g.mul_(0.5))),
    "scratch": lambda self, view: ({"sum": view.sent * 0}, lambda s, g, *_: (s, g + s["sum"].add_(g))),
}


@pytest.mark.parametrize("what", RULES)
def test_a_rule_that_changes_what_it_is_given_in_place_is_refused(what):
    kind = type("Halves", (Good,), {"correct": RULES[what]})
    with pytest.raises(UserError, match="the rule of Halves.correct changes a tensor in place that it was given"):
        check(kind())
    with pytest.raises(UserError, match="the rule of Halves.correct changes a tensor in place that it was given"):
        federate("softmax_regression", "digits", algorithm(kind(), name="halves"), clients=3, rounds=1, steps=1)


DRAWS = {"torch": lambda: torch.rand(()), "NumPy": lambda: np.random.rand(), "Python": lambda: random.random()}


@pytest.mark.parametrize("whose", [*DRAWS, ""])
def test_a_draw_that_no_seed_sets_is_told(whose, capsys):
    say_once.cache_clear()
    drawn = DRAWS.get(whose, lambda: 1.0)
    kind = type("Draws", (Good,), {"start": lambda self, view, theta: theta * float(drawn())})
    settings = {"clients": 3, "rounds": 2, "steps": 1, "lift": "sequential"}
    federate("softmax_regression", "digits", algorithm(kind(), name="draws"), **settings)
    said = f"a piece, a loss or a module of your own draws from the random numbers of {whose}"
    assert capsys.readouterr().err.count(said) == (1 if whose else 0)


class BySize(Good):
    """A whole number times a number of Python: float32 where clients are stacked."""

    def correct(self, view):
        return (), lambda scratch, g, theta, batch: (scratch, g * (1 - 0.1 / view.data.size))


class Seeded(Good):
    """Draws from a source of its own, with a seed."""

    def correct(self, view):
        noise = torch.randn(view.sent.shape, generator=torch.Generator().manual_seed(7))
        return (), lambda scratch, g, theta, batch: (scratch, g + noise)


def test_what_is_drawn_beside_the_draws_is_said_without_words_of_torch():
    with pytest.raises(AssertionError, match="Seeded.correct fails on .*: it draws at random: declare in the slot"):
        check(Seeded())


def test_a_difference_of_single_precision_has_its_own_reason():
    with pytest.raises(AssertionError, match=r"law 1 \(vectorized\): .* differs by \S+e-\d+: so little comes from"):
        check(BySize())


class Unknown(Good):
    """A client remembers the least of some values, which is infinite before its first round."""

    def client_memory(self, theta):
        return super().client_memory(theta) | {"least": theta.new_full((), float("inf"))}

    def remember(self, view):
        return view.client | {"least": view.client["least"].clamp(max=1.0)}


def test_what_a_client_remembers_may_begin_infinite():
    assert check(Unknown()).vectorized < 1e-10


def test_what_is_not_finite_is_said_without_reasons_of_another_law():
    undefined = type("Undefined", (Good,), {"learn": lambda self, memory, g, report, share: (g / 0, memory)})
    with pytest.raises(AssertionError, match="^law 8: Undefined.* is not finite on the contract's problem"):
        check(undefined())


class Unpredictable(Good):
    """Predicts with numbers that no stream of the run draws."""

    def predict(self, view):
        return lambda x: view.task.outputs(view.end, x) + torch.rand(3)


class ForMembers(Good):
    """Cannot predict for a client that is new."""

    def personal(self, view, theta):
        return theta if view.client["visits"] > 0 else theta / 0


class Unready(Good):
    """Its scores cannot be computed."""

    def predict(self, view):
        return lambda x: x.nonsense


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, said",
    [
        (Shrinks, "law 8 .a measurement changed its input"),
        (Unpredictable, "law 8 .a measurement does not repeat"),
        (ForMembers, "ForMembers.* is not finite"),
        (Unready, "Unready.predict fails on .*nonsense"),
    ],
)
def test_what_is_measured_is_held_to_it_too(kind, said):
    with pytest.raises(AssertionError, match=said):
        check(kind())


@dataclass(frozen=True)
class Claims(Piece):
    """Declares a value to be FedAvg; in training alone it is."""

    value: float = 1.0

    @classmethod
    def neutral(cls):
        return cls(0.0), "fedavg"


class Halves(Claims):
    """Half the model predicts, whatever the value."""

    def personal(self, view, theta):
        return theta / 2


class Sharpens(Claims):
    """The scores are doubled, whatever the value."""

    def predict(self, view):
        return lambda x: 2 * view.task.outputs(view.end, x)


@pytest.mark.parametrize("kind", (Halves, Sharpens))
def test_a_neutral_value_is_neutral_where_clients_are_measured_too(kind):
    with pytest.raises(AssertionError, match=rf"law 2 \({kind.__name__}\(value=0.0\) is not fedavg where client"):
        check(kind())


class WrongPeriod(Period):
    """Declares a period of two to be FedAvg."""

    def neutral(self):
        return Period(self.which, 2), "fedavg"


class WrongMomentum(Momentum):
    """Declares half a step to be FedAvg's."""

    def neutral(self):
        return Momentum(0.0, 0.5), "fedavg"


@pytest.mark.parametrize("part", [WrongPeriod("body", 3), Server(WrongMomentum()), Server(Sgd())], ids=repr)
def test_a_part_that_is_no_piece_is_held_to_its_neutral_value_too(part):
    with pytest.raises(AssertionError, match="law 2"):
        check(algorithm(part, name="part"))


@pytest.mark.slow
def test_every_part_says_what_its_neutral_value_is():
    subject = algorithm(
        Scaffold(), Period("body", 2), StepSize("head", 0.5), Alternate("head", 1), Server(Momentum()), name="all"
    )
    said = check(subject).neutral
    assert [text.partition("(")[0].partition(":")[0] for text in said] == [
        "Scaffold",
        "Period",
        "StepSize",
        "Server",
        "Alternate",
    ]
    assert said[1] == "Period(which='body', every=1): fedavg" and "Momentum(beta=0.0, lr=1.0)" in said[3]
