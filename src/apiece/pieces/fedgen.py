"""FedGen: the clients' classifiers teach the server to make features of a class, and clients learn from these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm
from apiece.algebra.message import PerClient
from apiece.algebra.papers import paper
from apiece.algebra.piece import Piece
from apiece.algebra.view import Loss, View
from apiece.errors import UserError
from apiece.pieces.generator_training import Classifier, GeneratorTraining, uniform
from apiece.pieces.samples import class_counts, divergence, one_class
from apiece.system.numbered import nth
from apiece.vector.space import Space


@dataclass(frozen=True)
class FedGen(GeneratorTraining, Piece):
    """loss(x, y) + f (b/B) alpha loss(h(G(v)), v) + f beta KL(stopgrad p(h(G(y))) || p(x)),   f = decay^round;
    G <- Adam on mean_y( sum_k (n_ky / sum_i n_iy) loss(h_k(G(y)), y) ) + diversity exp(-mean |e - e'|^2 |G - G'|),

    where h is the last layer (h_k: client k's after training), b is `batch` and B the size of the client's batch; v is
    uniform on all classes, and y in G's loss on those of the cohort; client k has n_ky samples of class y; e, e' and G,
    G' are noise and features of a pair in a batch. Zhu, Hong, Zhou, "Data-Free Knowledge Distillation for Heterogeneous
    Federated Learning", ICML 2021, with the values and readings of the authors' code: noise is uniform (the paper and a
    comment in the code say Gaussian), each h_k has its own loss (in the paper's equation (4) their mean scores have
    one), y is uniform (in the paper in proportion to labels), Adam's decay is L2, and its step size falls by `decay`
    each round. Our choices: n_ky counts all samples, where the code counts those of the round's batches and one more; a
    batch above `batch` repeats the noise. Models are averaged with the run's weights, in the code by samples
    (weighting=samples). The terms act from the second round on, in the first `steps` local steps, where the code has
    that many local epochs; the server takes `epochs` steps a round. Weights of 10 need small local steps, such as the
    code's 0.01. Stored: G, on the server. Sent down: G. Sent up: each client's last layer and label counts, which the
    server must see one by one, without secure aggregation. An unseen client uses the global model.
    """

    alpha: float = 10.0
    beta: float = 10.0
    steps: int = 20

    excludes = {"VHL": "its classifier has classes that no client has, so nobody can teach them to the generator"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.alpha, self.beta, self.steps) < 0:
            raise UserError("fedgen needs alpha, beta and steps of 0 or more.")

    @classmethod
    def neutral(cls):
        return cls(alpha=0.0, beta=0.0), "fedavg"

    def draws(self, space: Space):
        return uniform(2, self.batch, self.noise, name="noise"), uniform(self.batch, name="labels")

    def objective(self, view: View, loss: Loss):
        if not one_class(view):
            raise UserError("fedgen makes features of a class: labels must be classes.")
        if not (self.alpha or self.beta) or not view.since(1):
            return loss
        # in the model's type: a round can be a tensor of whole numbers
        fade, (weights, statistics) = view.sent.new_full((), self.decay) ** view.round, view.server

        def made(theta: Tensor, noise: Tensor, y: Tensor) -> Tensor:
            return view.task.head(theta, self.network.outputs(weights, (noise, y), statistics))

        def value(theta: Tensor, batch: Any) -> Tensor:
            if view.step() >= self.steps:
                return loss(theta, batch)
            (x, y), (free, own) = batch, nth(view.draws["noise"], view.step())
            student = view.task.outputs(theta, x).log_softmax(-1)
            v = (nth(view.draws["labels"], view.step()) * student.shape[-1]).to(torch.int64)
            wanted = self.batch / len(y) * view.task.loss(made(theta, free, v), v)
            teacher = made(theta, own[torch.arange(len(y), device=y.device) % self.batch], y).detach().log_softmax(-1)
            return loss(theta, batch) + fade * (self.alpha * wanted + self.beta * divergence(teacher, student))

        return value

    def report(self, view: View):
        said = torch.where(view.shared, view.end, view.sent)  # personal parameters stay with the client
        width = self.network.parameters[-1].shape[0]
        axes = torch.eye(width, dtype=said.dtype, device=said.device)
        points = torch.cat([axes.new_zeros(1, width), axes])
        scores = view.task.head(said, points)
        return Classifier(PerClient(scores), PerClient(class_counts(view, scores.shape[-1]).to(scores.dtype)))


@paper("the authors' code", weighting="samples", optimizer="sgd", lr=0.01)
def fedgen(
    alpha: float = FedGen.alpha,
    beta: float = FedGen.beta,
    decay: float = FedGen.decay,
    steps: int = FedGen.steps,
    batch: int = FedGen.batch,
    noise: int = FedGen.noise,
    hidden: int = FedGen.hidden,
    epochs: int = FedGen.epochs,
    lr: float = FedGen.lr,
    weight_decay: float = FedGen.weight_decay,
    diversity: float = FedGen.diversity,
) -> Algorithm:
    """The clients' classifiers teach the server to make features of a class, on which clients train too; weights of 10
    need small local steps, lr=0.01 or less (Zhu et al. 2021).

    Use it for classifiers where the server may read each client's last layer and label counts; secure aggregation is
    impossible.
    """
    server = (decay, batch, noise, hidden, epochs, lr, weight_decay, diversity)
    piece = FedGen(*server, alpha=alpha, beta=beta, steps=steps)
    return algorithm(piece, name=f"fedgen(alpha={alpha:g}, beta={beta:g})")
