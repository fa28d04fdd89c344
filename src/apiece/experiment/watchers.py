"""The watchers of a run: functions of a finished round, called one after the other. The numbers that a watcher returns
join the round's record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from torch import Tensor

from apiece.config.assemble import Experiment
from apiece.engine.clients import Clients
from apiece.engine.state import Server
from apiece.errors import UserError
from apiece.experiment import folders, lifecycle
from apiece.experiment.choice import cores
from apiece.experiment.clients import evaluation_of
from apiece.experiment.result import Info, Round, Told
from apiece.experiment.stopping import STOP
from apiece.measure.evaluate import Panel
from apiece.measure.observed import sheets
from apiece.measure.scoring import Values
from apiece.report.metrics import BY_KEY
from apiece.wired.remote import Remote

Watcher = Callable[[Round], Mapping[str, Any] | str | None]

PANEL = 100  # clients that are measured for personal metrics, unless `panel` says otherwise
FEWEST = 10  # clients whose local work is measured at the end, if so many trained
LEDGER = [number.key for number in BY_KEY.values() if number.section == "Sent" and not number.sum_of]


class Evaluate:
    """Measures the models, every `eval_every` rounds and after the last."""

    def __init__(self, experiment: Experiment, clients: Clients):
        config, place, self.experiment = experiment.config, experiment.federation, experiment
        panel = Panel(config.panel or PANEL, config.eval_every if config.panel_of == "turns" else 0)
        self.measure = evaluation_of(experiment, clients, panel, config.workers or cores())
        self.everyone = len(place.names) <= lifecycle.LISTED  # whether all are measured at the end, one by one
        self.values: dict[int, Values] | None = None  # of each client, from the latest measurement
        self.round = 0  # after which these were measured
        self.whole = False  # whether that was the run's last round, after which more clients are measured
        self.undefined = set[str]()  # the metrics of which it was said that some clients have no value
        self.broken = False  # whether it was said that a client predicts what is not a number

    def __call__(self, round: Round) -> Info:
        server, lr = round.state.server, round.plan.lr
        own = self.experiment.federated.setup.own_pieces
        if round.number == 1 and any(piece.fills("evaluate", "personal", "predict", "observe") for piece in own):
            self._try(round)
        if round.number % self.experiment.config.eval_every and not round.last:
            return {}
        measured, self.values = self.measure(server, lr, everyone=round.last and self.everyone)
        self.round, self.whole = round.number, round.last
        if round.clients.ranks.leads:
            self._tell_undefined(self.values)
            self._tell_broken(round.number, self.values)
        return measured | (self._adapted(server, lr) if round.last else {})

    def _try(self, round: Round) -> None:
        """Measure and show, and discard that: a mistake in a user's piece is said before more rounds are done."""
        if isinstance(self.experiment.federation, Remote):  # whose nodes are asked for no more than they must be
            return
        if self.experiment.config.eval_every > 1:
            self.measure(round.state.server, round.plan.lr, everyone=False)
        round.clients.ranks.first(lambda: sheets(round.clients, round.state.server, self.experiment.dataset))

    def kept_by(self, keep: Callable[[Round, Mapping[int, Values]], None]) -> Watcher:
        """A watcher that gives `keep` the clients' values of each round that was measured."""

        def watch(round: Round) -> None:
            if self.round == round.number and self.values is not None:
                keep(round, self.values)

        return watch

    def _tell_undefined(self, values: Mapping[int, Values]) -> None:
        """Say once of each metric that some clients have no value of it."""
        for metric in self.measure.metrics:
            without = sum(metric.name not in own for own in values.values())
            if without and metric.name not in self.undefined:
                self.undefined.add(metric.name)
                folders.say_once(
                    f"{metric.name} is not defined for {without} of {len(values)} clients, whose test samples are too "
                    "few or too alike (one class alone): means over clients leave these out."
                )

    def _tell_broken(self, number: int, values: Mapping[int, Values]) -> None:
        """Say once that values are not a number: training goes on, because it does not depend on them."""
        broken = {
            client: names
            for client, own in values.items()
            if (names := {name for name, value in own.items() if math.isnan(value)})
        }
        if not broken or self.broken:
            return
        self.broken, concerned = True, set[str]().union(*broken.values())
        first = str(self.experiment.federation.names[next(iter(broken))])
        known = {metric.name for metric in self.measure.metrics if metric.function.__module__.startswith("apiece.")}
        own = "" if concerned & known else "the metric may not be defined for their samples, or "
        folders.say_once(
            f"after round {number}, {' and '.join(sorted(concerned))} of {len(broken)} of {len(values)} clients is not "
            f"a number (NaN), first {first!r}: {own}the step size of their local training may be too large"
            f"{self.experiment.federated.setup.suspects('personal', 'predict')}."
        )

    def ended(self, server: Server) -> Info:
        """What is measured after the last round, for a run that was ended before it."""
        lr = self.experiment.plan(server.round - 1).lr
        measured, self.values = self.measure(server, lr, everyone=self.everyone)
        self.round, self.whole = server.round, True
        return measured | self._adapted(server, lr)

    def _adapted(self, server: Server, lr: float) -> Info:
        """What clients gain by a round's local work. It is measured on the panel, if one was given, and otherwise on as
        many clients as cost a quarter of the training: on ten at the least, if so many trained.
        """
        trained = server.round * self.experiment.cohort
        most = self.experiment.config.panel or max(trained // 4, min(FEWEST, trained))
        return self.measure.adapted(server, lr, most)

    def at_the_end(self, server: Server) -> dict[int, Values]:
        """Each client's values after the last round; measured here if that round was done before a resumption."""
        if self.values is None or not self.whole:
            lr = self.experiment.plan(max(server.round - 1, 0)).lr
            self.values = self.measure(server, lr, everyone=self.everyone)[1]
        return self.values


def sent(round: Round) -> Info:
    """The numbers and bytes that have crossed between clients and server so far."""
    return {name: getattr(round.state.traffic, name) for name in LEDGER}


def joined(info: Info, given: Any) -> Info:
    """A watcher's result, in the form in which it joins the record; raises UserError if a value is no number, or if a
    name is taken.
    """
    if stops(given):
        return {}
    if not isinstance(given, Mapping | None):
        raise UserError(f"a watcher returned {given!r}: let it return numbers by name, or nothing.")
    numbers = {}
    for name, value in (given or {}).items():
        if name in info:
            raise UserError(f"a watcher returned {name!r}, which the round's record has already: take another name.")
        if not (isinstance(value, Real) or (isinstance(value, Tensor) and not value.dim())):
            raise UserError(f"a watcher returned {name!r}={value!r}: let it be a number, or a tensor of shape [].")
        numbers[name] = value if isinstance(value, int) else float(value)
    return numbers


def told(on_round: Callable[[Info], object]) -> Watcher:
    """A watcher that calls a function of the record; a text that the function returns is an answer of its own."""

    def watch(round: Round) -> str | None:
        answer = on_round(Told(round))
        return answer if isinstance(answer, str) else None

    return watch


def stops(answer: Any) -> bool:
    """Whether a watcher asks to end the run; raises UserError for any other text."""
    if isinstance(answer, str) and answer != STOP:
        raise UserError(
            f"on_round, or a watcher, returned {answer!r}: let it return {STOP!r} to end the run, or nothing."
        )
    return isinstance(answer, str)
