"""FedCOG: a client makes inputs from the shared model that complement its data, and distills that model on them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm, changed
from apiece.algebra.draws import Draw
from apiece.algebra.optim import AdamW
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import Loss, View
from apiece.errors import UserError
from apiece.pieces.generation import Inputs, Network
from apiece.pieces.samples import class_counts, divergence, input_shape, log_probabilities, one_class, several
from apiece.vector.space import Space

ADAM = AdamW(beta1=0.5, beta2=0.9, epsilon=1e-8, weight_decay=0.0)
TARGETS, COUNTS, SHUFFLES = ("complementary", "uniform"), "counts", ("once", "each_pass")
SOURCES = {"inputs": Inputs, "network": Network}
REFUSAL = "fedcog makes inputs by gradient descent for wanted classes: samples must be real numbers, labels classes."


class Made(NamedTuple):
    """A client's generated set of one round, in random order."""

    x: Tensor  # [samples, *sample]
    y: Tensor  # int64 [samples]; [samples, C] where a sample can have several labels
    outputs: Tensor  # the global model's outputs on x, [samples, C]


@dataclass(frozen=True)
class FedCOG(Piece):
    """x <- argmin_x loss(global; x, y) + dis (1 - JS(p(global; x), p(model; x)));
    theta <- argmin_theta loss(theta; the client's data) + kd_weight T^2 KL(p_T(global; x) || p_T(theta; x)).

    Ye et al., "Fake It Till Make It: Federated Learning with Consensus-Oriented Generation", ICLR 2024, Algorithm
    1, lines 5 and 8, equations (1) to (3). `model` is the client's model at the end of its last training
    (theta_k^{t-1,tau}); before the first one, dis is 0. The targets complement the client's classes, d^ = max(d) -
    d by largest remainder, or are uniform (A.1.1). The first `wait` rounds are without generation: none in
    Algorithm 1, 50 in the paper's runs (6.2). kd_weight="counts": the weights are |d| and |d^|, each divided by
    their sum (A.2.2). Where a sample can have several labels (FLAIR), |d| counts labels instead of samples, each
    target has one label, each label has a probability of its own, and JS and KL are means over labels. T is the
    temperature, which divides the outputs: 1 in the paper, and in the run of the authors' code. Each step distills
    `batch` samples of the set, in passes over it: all passes have the same random order (shuffle=once), or each has
    another one, as with the authors' loader (shuffle=each_pass); the loader begins each pass with a new batch,
    whereas here a batch may span two passes. Both models are in evaluation mode. A personal parameter of the global
    model is the client's own; under FedALS the teacher inside an interval is the new head on the body that was sent
    when the interval opened. Stored: the client's model. Sent: nothing extra. An unseen client uses the global
    model.
    """

    kd_weight: float | str = 0.01
    dis: float = 0.1
    samples: int = 256
    steps: int = 100
    lr: float = 0.01
    batch: int = 64
    wait: int = 0
    targets: str = "complementary"
    source: Any = Inputs()
    temperature: float = 1.0
    shuffle: str = "once"

    def __post_init__(self) -> None:
        if self.kd_weight != COUNTS and (isinstance(self.kd_weight, str) or self.kd_weight < 0):
            raise UserError(f"fedcog(kd_weight={self.kd_weight}) is no weight: give 0 or more, or {COUNTS}.")
        if self.targets not in TARGETS:
            raise UserError(f"fedcog(targets={self.targets}) is unknown: use {' or '.join(TARGETS)}.")
        if self.shuffle not in SHUFFLES:
            raise UserError(f"fedcog(shuffle={self.shuffle}) is unknown: use {' or '.join(SHUFFLES)}.")
        if not 0 < self.temperature < math.inf:
            raise UserError(f"fedcog(temperature={self.temperature:g}) divides outputs: give a number above 0.")
        if min(self.samples, self.batch) < 1 or min(self.steps, self.wait, self.dis, self.lr) < 0:
            raise UserError("fedcog needs samples and batch of 1 or more, and steps, wait, dis and lr of 0 or more.")

    @property
    def reads(self):
        return frozenset({"model", "fresh"} if self.kd_weight and self.dis else ())

    @classmethod
    def neutral(cls):
        return cls(kd_weight=0.0), "fedavg"

    def draws(self, space: Space):
        if not self.kd_weight:
            return ()
        made = (*self.source.draws(self.samples), Draw("order", (self.samples,), "uniform"))
        later = Draw("shuffles", (min(self.batch, self.samples),), "uniform", each="step")
        return made if self.shuffle == "once" else (*made, later)

    def objective(self, view: View, loss: Loss):
        if not self.kd_weight or not view.since(self.wait):
            return loss
        made, bears = self.generate(view), several(view)
        soft = lambda outputs: log_probabilities(outputs / self.temperature, bears)
        teacher, size, order = soft(made.outputs), min(self.batch, self.samples), self._order(view)
        real, distilled = 1.0, self.kd_weight
        if isinstance(distilled, str):
            real, distilled = balance(class_counts(view, made.outputs.shape[-1]), teacher.dtype)

        def value(theta: Tensor, batch: Any) -> Tensor:
            rows = order[(view.step() * size + torch.arange(size, device=teacher.device)) % len(order)]
            apart = divergence(teacher[rows], soft(view.task.outputs(theta, made.x[rows])))
            return real * loss(theta, batch) + distilled * self.temperature**2 * apart

        return value

    def generate(self, view: View, steps: int | None = None) -> Made:
        """The inputs after `steps` steps of Adam (None: all), their targets, and the teacher's outputs on them."""
        sample, bears = input_shape(view, several(view) or one_class(view), REFUSAL), several(view)
        everyone = view.with_own(view.sent)
        learnt = self.source.begin(view.draws, sample)
        classes = view.task.outputs(everyone, self.source.inputs(learnt, sample)[:1]).shape[-1]
        y = self._targets(view, classes)

        def badness(learnt: Tensor) -> tuple[Tensor, tuple]:
            x = self.source.inputs(learnt, sample)
            outputs = view.task.outputs(everyone, x)
            value = view.task.loss(outputs, y)
            if self.dis:
                dis = self.dis * (1 - torch.as_tensor(view.fresh).to(view.sent.dtype))
                p, q = (log_probabilities(o, bears) for o in (outputs, view.task.outputs(view.model, x)))
                value = value + dis * (1 - jensen_shannon(p, q))
            return value, ()

        def better(at: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
            learnt, state = at
            return ADAM.step(view.task.differentiate(badness, learnt)[0], learnt, state, self.lr)

        learnt, _ = view.repeat(better, (learnt, ADAM.init(learnt)), self.steps if steps is None else steps)
        x = self.source.inputs(learnt, sample)
        return Made(x, y, view.task.outputs(everyone, x))

    def observe(self, view: View) -> dict[str, Tensor]:
        """The paper's Figure 5: the inputs before and after optimization, sorted by target; none with the weight 0."""
        made = {steps: self.generate(view, steps) for steps in ((0, self.steps) if self.kd_weight else ())}
        by_target = lambda y: torch.argsort(y.argmax(-1) if y.dim() > 1 else y, stable=True)
        return {f"FedCOG, {steps} steps": one.x[by_target(one.y)] for steps, one in made.items()}

    def _order(self, view: View) -> Tensor:
        """The rows of the set in the order of use, pass after pass: int64, `samples` for each pass."""
        rows = torch.arange(self.samples, device=view.sent.device)
        if self.shuffle == "once":
            return rows
        drawn = view.draws["shuffles"].reshape(-1)
        later = drawn[: len(drawn) - len(drawn) % self.samples].view(-1, self.samples)
        return torch.cat([rows, torch.argsort(later).flatten()])

    def _targets(self, view: View, classes: int) -> Tensor:
        """The targets, in random order: int64 [samples], or [samples, C] where a sample can have several labels."""
        counts = class_counts(view, classes)
        each = allocation(counts if self.targets == "complementary" else torch.zeros_like(counts), self.samples)
        places = torch.arange(self.samples, device=each.device)
        y = (each.cumsum(0)[:, None] <= places).sum(0)[torch.argsort(view.draws["order"])]
        return (y[:, None] == torch.arange(classes, device=y.device)).to(view.sent.dtype) if several(view) else y


def allocation(counts: Tensor, samples: int) -> Tensor:
    """Samples for each class [C]: in proportion to max(d) - d by largest remainder, or equal where all d are."""
    need = counts.amax() - counts
    need = torch.where(need.sum() == 0, torch.ones_like(need), need)
    whole, rest = need * samples // need.sum(), need * samples % need.sum()
    rank = torch.argsort(torch.argsort(rest, descending=True, stable=True))
    return whole + (rank < samples - whole.sum())


def balance(counts: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The weights of the client's own data, |d| / (|d| + |d^|), and of the complement, |d^| / (|d| + |d^|)."""
    own, lacking = counts.sum().to(dtype), (counts.amax() - counts).sum().to(dtype)
    return own / (own + lacking), lacking / (own + lacking)


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """Half of KL(p || m) + KL(q || m), where m = (p + q) / 2: from 0 to log 2, stable where p or q vanishes."""
    middle = torch.logaddexp(p, q) - math.log(2)
    return 0.5 * (divergence(p, middle) + divergence(q, middle))


@paper(
    "section 6.1 and the authors' code", weighting="samples", optimizer="sgd(momentum=0.9, weight_decay=1e-05)", lr=0.01
)
def fedcog(
    kd_weight: float | str = FedCOG.kd_weight,
    dis: float = FedCOG.dis,
    samples: int = FedCOG.samples,
    steps: int = FedCOG.steps,
    lr: float = FedCOG.lr,
    batch: int = FedCOG.batch,
    wait: int = FedCOG.wait,
    targets: str = FedCOG.targets,
    source: Annotated[Inputs | Network, SOURCES] = FedCOG.source,
    temperature: float = FedCOG.temperature,
    shuffle: str = FedCOG.shuffle,
) -> Algorithm:
    """Inputs made from the shared model complement a client's data: kd_weight=counts, targets=complementary|uniform,
    source=inputs|network(latent=256, width=128), shuffle=once|each_pass; wait: rounds before the first in which inputs
    are made, 50 in the paper's runs (Ye et al. 2024).

    Use it for images on few clients that each lack classes, where they can compute much more than in FedAvg: each
    client makes inputs by descent in every round.
    """
    piece = FedCOG(kd_weight, dis, samples, steps, lr, batch, wait, targets, source, temperature, shuffle)
    named = changed(fedcog, temperature=temperature, shuffle=shuffle)
    return algorithm(piece, name=f"fedcog(kd_weight={kd_weight}{named})")
