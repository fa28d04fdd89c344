"""The tests against the oracles fail on a piece with a mistake."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from oracles import ORACLES
from support.against import build, follow, furthest
from support.readings import FIXTURES, SHOWS, TIGHT, reading
from support.written import (
    WrittenDitto,
    WrittenFedCOG,
    WrittenFedGen,
    WrittenMetaStep,
    WrittenPefll,
    WrittenPfedhn,
    WrittenVHL,
)

from apiece.algebra.composition import Period, Server, combine
from apiece.algebra.generators import Frozen
from apiece.algebra.message import PerClient
from apiece.algebra.optim import Velocity
from apiece.algebra.periods import Schedule
from apiece.algebra.server_optim import Adam, Momentum
from apiece.language import algorithms as named
from apiece.pieces.apfl import Mixture
from apiece.pieces.ditto import Own
from apiece.pieces.fedcm import FedCM
from apiece.pieces.feddecorr import FedDecorr
from apiece.pieces.feddyn import FedDyn
from apiece.pieces.fedexp import FedExP
from apiece.pieces.fednova import FedNova
from apiece.pieces.fedreg import FedReg
from apiece.pieces.fedsam import FedSAM
from apiece.pieces.fine_tune import FineTune
from apiece.pieces.iterates import AveragedIterates, Previous
from apiece.pieces.knn_per import Neighbors
from apiece.pieces.moon import MOON
from apiece.pieces.newcomer import Newcomer
from apiece.pieces.outer_step import OuterStep
from apiece.pieces.per_fedavg import part
from apiece.pieces.pfedme import MoreauEnvelope
from apiece.pieces.proximal import Proximal
from apiece.pieces.relaxed_init import RelaxedInit
from apiece.pieces.scaffold import Control, Scaffold


class SignScaffold(Scaffold):
    """The correction reversed."""

    def correct(self, view):
        return (), lambda scratch, g, theta, batch: (scratch, g + view.client.variate - view.server.variate)


class ShareScaffold(Scaffold):
    """c moved by 1/S, not 1/N."""

    def learn(self, memory, g, report, share):
        return g, Control(memory.variate + report.x)


class ForgetfulScaffold(Scaffold):
    """c_i never written back."""

    def remember(self, view):
        return view.client


class SentScaffold(Scaffold):
    """The difference taken from what was sent, by option II."""

    def _variate(self, view):
        c = view.client.variate - view.server.variate + (view.sent - view.end) / (view.steps * view.lr)
        return torch.where(view.shared, c, 0.0)

    def report(self, view):
        return super().report(view)._replace(x=self._variate(view) - view.client.variate)

    def remember(self, view):
        return Control(self._variate(view))


class TowardsInit(RelaxedInit):
    """Started towards the client's last model."""

    def start(self, view, theta):
        return theta - self.beta * (theta - view.model)


class HalfProximal(Proximal):
    """mu/2 kept in the gradient."""

    def correct(self, view):
        return (), lambda scratch, g, theta, batch: (scratch, g + 0.5 * self.mu * (theta - view.start))


class SentProximal(Proximal):
    """Pulled towards what was sent."""

    def correct(self, view):
        return (), lambda scratch, g, theta, batch: (scratch, g + self.mu * (theta - view.sent))


class WholeOuterStep(OuterStep):
    """Every parameter moved part of the way."""

    def keep(self, view, theta):
        return view.model + self.size * (theta - view.model)


class SignFedDyn(FedDyn):
    """The linear term reversed."""

    def correct(self, view):
        h = view.client.term
        return (), lambda scratch, g, theta, batch: (scratch, g + h + self.alpha * (theta - view.start))


class ShareFedDyn(FedDyn):
    """h moved by 1/S, not 1/N."""

    def learn(self, memory, g, report, share):
        return super().learn(memory, g, report, 1.0)


class SentFedDyn(FedDyn):
    """Pulled towards what was sent."""

    def correct(self, view):
        return super().correct(view._replace(start=view.sent))


class StepsFedCM(FedCM):
    """The direction not divided by the number of steps."""

    def report(self, view):
        return super().report(view._replace(steps=torch.ones_like(view.steps)))


class SentFedCM(FedCM):
    """The direction taken from what was sent."""

    def report(self, view):
        return super().report(view._replace(start=view.sent))


class PlainFedSAM(FedSAM):
    """The ascent not normalized."""

    def objective(self, view, loss):
        return lambda theta, batch: loss(theta + self.rho * view.task.gradient(theta.detach(), batch), batch)


class ShrunkFedNova(FedNova):
    """The normalized mean not multiplied back."""

    def learn(self, memory, g, report, share):
        return g, memory


class BelowFedExP(FedExP):
    """The step not bounded from below."""

    def learn(self, memory, g, report, share):
        return g * (report.norm.x / (2 * (g @ g + self.epsilon))), memory


class LastIterate(AveragedIterates):
    """The last iterate measured."""

    def settle(self, memory, before, after):
        return Previous(after)


class SwappedMOON(MOON):
    """Towards the last model."""

    def objective(self, view, loss):
        return super().objective(view._replace(sent=view.model, model=view.sent), loss)


class EarlyMOON(MOON):
    """A contrast with the initial model."""

    def objective(self, view, loss):
        return super().objective(view._replace(fresh=False), loss)


class WholeFedDecorr(FedDecorr):
    """The sum over a batch of four."""

    def objective(self, view, loss):
        return FedDecorr(4 * self.beta).objective(view, loss)


class StaleFedCOG(WrittenFedCOG):
    """The teacher's outputs on the inputs before they were made."""

    def generate(self, view, steps=None):
        return super().generate(view)._replace(outputs=super().generate(view, 0).outputs)


class EarlyFedCOG(WrittenFedCOG):
    """Disagreement with the initial model."""

    def generate(self, view, steps=None):
        return super().generate(view._replace(fresh=False), steps)


class FastFedReg(FedReg):
    """The gradient at the model in training."""

    def objective(self, view, loss):
        return loss


class SentFedReg(FedReg):
    """Nothing forgotten but by the last step."""

    def correct(self, view):
        made = super().correct(view)[1]
        return (), lambda scratch, g, theta, batch: made(scratch, g, view.start, batch)


class PairedVHL(WrittenVHL):
    """The client's classes are the noise's."""

    def objective(self, view, loss):
        head = view.task.head
        swapped = lambda theta, z: head(theta, z).roll(3, -1)
        task = SimpleNamespace(features=view.task.features, head=swapped, loss=view.task.loss)
        return super().objective(view._replace(task=task), loss)


class LateVHL(WrittenVHL):
    """Aligned to the end."""

    def objective(self, view, loss):
        return super().objective(view._replace(data=view.data._replace(size=10 * view.data.size)), loss)


class EarlyFedGen(WrittenFedGen):
    """Features from the first round on."""

    def objective(self, view, loss):
        written = view._replace(round=view.round + 1)
        return super().objective(written, loss) if not view.round else super().objective(view, loss)


class TrustingFedGen(WrittenFedGen):
    """Clients' classifiers count alike."""

    def learn(self, memory, g, report, share):
        alike = report._replace(counts=PerClient(torch.ones_like(report.counts.x)))
        return super().learn(memory, g, alike, share)


class RestartedDitto(WrittenDitto):
    """The second model begins at what was sent."""

    def remember(self, view):
        return super().remember(view._replace(client=Own(view.sent[None])))


class WholeMixture(Mixture):
    """The share of the mixture never learnt."""

    def remember(self, view):
        return super().remember(view)._replace(share=view.client.share)


class AliasedEnvelope(MoreauEnvelope):
    """The personal model is the one that is sent."""

    def remember(self, view):
        return Own(view.end[None])


class TrackedMetaStep(WrittenMetaStep):
    """The inner step taken with the outer one's half."""

    def objective(self, view, loss):
        after = super().objective(view, loss)
        return lambda theta, batch: after(theta, part(batch, 0, 2))


class WholeNewcomer(Newcomer):
    """A new client trains everything."""

    def personal(self, view, theta):
        return super().personal(view._replace(shared=torch.zeros_like(view.shared), model=theta), theta)


class UnsquaredNeighbors(Neighbors):
    """exp of the distance."""

    def _distances(self, queries, keys):
        return (super()._distances(queries, keys) / (keys.shape[1] * self.scale)).sqrt()


class StaleFineTune(FineTune):
    """From the client's last model."""

    def personal(self, view, theta):
        return super().personal(view, view.model)


@dataclass(frozen=True)
class ExchangedPeriod(Period):
    """The head averaged as rarely as the body should be."""

    def __post_init__(self):
        object.__setattr__(self, "which", "head")


class ForgetfulMomentum(Momentum):
    """No beta."""

    def move(self, gradient, state):
        return gradient, Velocity(gradient)


class DampedMomentum(Momentum):
    """The new difference times 1 - beta."""

    def move(self, gradient, state):
        return super().move((1 - self.beta) * gradient, state)


class UnrootedAdam(Adam):
    """Divided by v, not by its root."""

    def step(self, gradient, theta, state, lr=1.0):
        state = super().step(gradient, theta, state, lr)[1]
        return theta - self.lr * lr * state.first / (state.second + self.tau), state


class SummedAdam(Adam):
    """Adagrad's v."""

    def second(self, v, square):
        return v + square


class RefitFrozen(Frozen):
    """m and s anew in every round."""

    def fit(self, memory, v):
        return super().fit(self.memory(v), v)


class RefitPefll(WrittenPefll):
    """Descriptors normalized by each round's first."""

    def complete(self, space, setting):
        return replace(super().complete(space, setting), normalize=RefitFrozen())


class SignPefll(WrittenPefll):
    """delta = new - old taken as a gradient."""

    def complete(self, space, setting):
        whole = super().complete(space, setting)
        return replace(whole, optimizer=Reversed(whole.optimizer))


class Reversed(NamedTuple):
    """Another optimizer against the gradient's sign."""

    optimizer: Any

    def init(self, theta):
        return self.optimizer.init(theta)

    def step(self, gradient, theta, state, lr=1.0):
        return self.optimizer.step(-gradient, theta, state, lr)


class Sparse(NamedTuple):
    """Another optimizer that leaves alone what has no gradient."""

    optimizer: Any

    def init(self, theta):
        return self.optimizer.init(theta)

    def step(self, gradient, theta, state, lr=1.0):
        moved, state = self.optimizer.step(gradient, theta, state, lr)
        return torch.where(gradient == 0, theta, moved), state


class SparsePfedhn(WrittenPfedhn):
    """PerClient of clients that were not asked stand still."""

    def complete(self, space, setting):
        whole = super().complete(space, setting)
        return replace(whole, optimizer=Sparse(whole.optimizer))


class UnclippedPfedhn(WrittenPfedhn):
    """No clip on the server."""

    def complete(self, space, setting):
        whole = super().complete(space, setting)
        return replace(whole, optimizer=replace(whole.optimizer, norm=None))


MISTAKES = [
    (SignScaffold, "scaffold"),
    (ShareScaffold, "scaffold"),
    (ForgetfulScaffold, "scaffold"),
    (SignScaffold, "fedals_scaffold"),
    (ShareScaffold, "scaffold_p"),
    (SentScaffold, "scaffold_fedinit"),
    (SentScaffold, "scaffold_p_fedinit"),
    (TowardsInit, "fedinit"),
    (TowardsInit, "fedals_fedinit"),
    (HalfProximal, "fedprox"),
    (SentProximal, "fedprox_fedinit"),
    (WholeOuterStep, "fedavg_p"),
    (RestartedDitto, "ditto"),
    (WholeMixture, "apfl"),
    (AliasedEnvelope, "pfedme"),
    (TrackedMetaStep, "per_fedavg"),
    (WholeNewcomer, "fedrep"),
    (UnsquaredNeighbors, "knn_per"),
    (StaleFineTune, "fine_tune"),
    (SwappedMOON, "moon"),
    (EarlyMOON, "moon"),
    (WholeFedDecorr, "feddecorr"),
    (StaleFedCOG, "fedcog"),
    (EarlyFedCOG, "fedcog"),
    (EarlyFedCOG, "scaffold_fedcog"),
    (HalfProximal, "fedprox_fedcog"),
    (SwappedMOON, "moon_fedcog"),
    (TowardsInit, "fedinit_fedcog"),
    (EarlyFedCOG, "fedals_fedinit_fedcog"),
    (ShareFedDyn, "fedals_feddyn"),
    (FastFedReg, "fedreg"),
    (SentFedReg, "fedreg"),
    (PairedVHL, "vhl"),
    (LateVHL, "vhl"),
    (EarlyFedGen, "fedgen"),
    (TrustingFedGen, "fedgen"),
    (SignFedDyn, "feddyn"),
    (ShareFedDyn, "feddyn"),
    (SentFedDyn, "feddyn_fedinit"),
    (StepsFedCM, "fedcm"),
    (SentFedCM, "fedcm_fedinit"),
    (PlainFedSAM, "fedsam"),
    (ShrunkFedNova, "fednova"),
    (BelowFedExP, "fedexp"),
    (LastIterate, "fedexp"),
    (ExchangedPeriod, "fedals"),
    (ForgetfulMomentum, "fedavgm"),
    (DampedMomentum, "fedavgm"),
    (UnrootedAdam, "fedopt"),
    (SummedAdam, "fedopt"),
    (UnrootedAdam, "fedadam_fedinit"),
    (TowardsInit, "fedadam_fedinit"),
    (RefitPefll, "pefll"),
    (SignPefll, "pefll"),
    (SparsePfedhn, "pfedhn"),
    (UnclippedPfedhn, "pfedhn"),
]


@pytest.mark.slow
@pytest.mark.parametrize("part, oracle", MISTAKES)
def test_a_piece_with_a_mistake_is_caught(part, oracle):
    hyper, f = ORACLES[oracle].EXAMPLE, FIXTURES["even"]
    right = build(oracle, **hyper)

    def spoil(of: Any) -> Any:
        if isinstance(of, Server):
            return Server(spoil(of.optimizer))
        if not isinstance(of, part.__base__):
            return of
        return part(**{field.name: getattr(of, field.name) for field in fields(of)})

    wrong = combine([spoil(of) for of in right.parts], right.name)
    assert wrong.parts != right.parts
    assert furthest(follow(wrong, f, **hyper)[1], reading(oracle, "even")) > SHOWS


@pytest.mark.parametrize("oracle", ["fedals", "fedals_fedinit", "fedals_first_step", "fedals_scaffold"])
@pytest.mark.parametrize(
    "slot, mistake",
    [("closes", lambda right, self, round: right(self, round - 1)), ("opens", lambda right, self, *_: self.shared)],
    ids=["a round late", "sent in every round"],
)
def test_a_schedule_with_a_mistake_is_caught(monkeypatch, slot, mistake, oracle):
    """No part of an algorithm, but what its periods are kept by."""
    hyper, f, right = ORACLES[oracle].EXAMPLE, FIXTURES["even"], getattr(Schedule, slot)
    monkeypatch.setattr(Schedule, slot, lambda self, *when: mistake(right, self, *when))
    assert furthest(follow(build(oracle, **hyper), f, **hyper)[1], ORACLES[oracle].run(f, **hyper)) > SHOWS


def test_a_right_piece_in_a_wrong_place_is_right():
    """The machinery of the test above spoils nothing by itself: SentScaffold is SCAFFOLD where nothing is relaxed."""
    f, right = FIXTURES["even"], named.scaffold()
    wrong = replace(right, pieces=(SentScaffold(),))
    assert furthest(follow(wrong, f)[1], ORACLES["scaffold"].run(f)) < TIGHT
