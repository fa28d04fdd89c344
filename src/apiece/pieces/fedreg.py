"""FedReg: each local step loses the part that forgets the global model, as samples made from that model show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import Loss, View
from apiece.errors import UserError
from apiece.pieces.samples import divergence, input_shape, log_probabilities, refuse_unlabeled, several
from apiece.system.device import scalar
from apiece.system.numbered import by_number


@dataclass(frozen=True)
class FedReg(Piece):
    """theta <- theta' - a s - b r,   theta' = theta - lr g(gamma theta + (1 - gamma) start),   d = theta' - start,
    a = max(0, <d, s> / ||s||^2),   b = max(0, <d - a s, r> / ||r||^2),   with, at the point (theta' + start) / 2,
    s = grad KL(p(start; x_s) || p(.; x_s)) and r = grad loss(x_p, y), on samples that climb start's loss by its sign:
    x_s, x_p <- x + eta sign(grad_x loss(start; x, y)), `steps` times from the batch's x, eta `pseudo` and `perturbed`.

    Xu et al., "Acceleration of Federated Learning with Alleviated Forgetting in Local Training", ICLR 2022, as in the
    authors' code. Its gamma is 0.02 to 1, and for the CIFAR ResNets 0.25 to 0.5 with eta of 0.1 and 0.001. It computes
    a clamp to the range of the inputs and drops it; here there is none. Without a GPU, its x_p starts where x_s ended,
    for both share their memory; here x_p starts at x. Both are made once a round from its first `batches` batches,
    before augmentation, and used in turn: the step on such a batch uses its samples; the code makes them from another
    pass over the client's data, augmented. The formula assumes a plain SGD step and ignores momentum and decay. Where
    the step size is 0, nothing is taken out. Models are averaged with the run's weights, in the code uniformly
    (weighting=uniform). The cost is 2 `steps` gradients by inputs for each batch that samples are made from, and three
    by parameters for each step. Stored: nothing. Sent: nothing extra, so secure aggregation is possible. An unseen
    client uses the global model.
    """

    gamma: float = 0.5
    steps: int = 10
    pseudo: float = 0.1
    perturbed: float = 0.001
    batches: int = 100

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1 or min(self.pseudo, self.perturbed) < 0 or min(self.steps, self.batches) < 1:
            raise UserError(
                f"{self!r}: gamma is above 0 and at most 1, steps and batches are 1 or more, pseudo and perturbed 0 or "
                "more."
            )

    @classmethod
    def neutral(cls):
        return "the projections are the method, and no value leaves them out"

    def objective(self, view: View, loss: Loss):
        def slow(theta: Tensor, batch: Any) -> Tensor:
            return loss(theta - (1 - self.gamma) * (theta.detach() - view.start), batch)

        return slow

    def correct(self, view: View):
        refuse_unlabeled(view, "fedreg")

        def known(theta: Tensor, x: Tensor) -> Tensor:
            return log_probabilities(view.task.outputs(theta, x), several(view))

        def made(batch: Any) -> tuple[Tensor, Tensor, Any]:
            x_s, x_p = (self._climbed(view, batch, eta) for eta in (self.pseudo, self.perturbed))
            return x_s, known(view.start, x_s), (x_p, batch[1])

        lr = scalar(view.lr, view.start, view.start.dtype)
        few = [made(view.data.batch(view.batches[k])) for k in range(min(self.batches, len(view.batches)))]
        at, count = by_number(few), len(few)

        def rule(scratch: Any, g: Tensor, theta: Tensor, batch: Any):
            x_s, teacher, perturbed = at(view.step() % count)
            away = theta - view.lr * g - view.start
            s = view.task.differentiate(lambda at: (divergence(teacher, known(at, x_s)), ()), view.start + away / 2)[0]
            left = _without(away, s)
            kept = _without(left, view.task.gradient(view.start + away / 2, perturbed))
            return scratch, g + (away - kept) / torch.where(lr > 0, lr, 1.0)

        return (), rule

    def _climbed(self, view: View, batch: Any, eta: float) -> Tensor:
        x, y = batch
        input_shape(view, True, "fedreg moves inputs by the sign of a gradient: samples must be real numbers.")

        def higher(x: Tensor) -> Tensor:
            by_input = view.task.differentiate(lambda at: (view.task.loss(view.task.outputs(view.start, at), y), ()), x)
            return x + eta * by_input[0].sign()

        return view.repeat(higher, x, self.steps)


def _without(d: Tensor, g: Tensor) -> Tensor:
    """d without its component along g, where that component is positive."""
    return d - (d @ g / (g @ g).clamp(min=torch.finfo(g.dtype).tiny)).clamp(min=0.0) * g


@paper("the authors' code", weighting="uniform", optimizer="sgd")
def fedreg(
    gamma: float = FedReg.gamma,
    steps: int = FedReg.steps,
    pseudo: float = FedReg.pseudo,
    perturbed: float = FedReg.perturbed,
    batches: int = FedReg.batches,
) -> Algorithm:
    """Steps lose what forgets the global model, as samples made from `batches` batches show (Xu et al. 2022).

    Use it where clients forget classes that they lack, and three gradients a step are acceptable. It keeps and sends
    nothing more.
    """
    return algorithm(FedReg(gamma, steps, pseudo, perturbed, batches), name=f"fedreg(gamma={gamma:g})")
