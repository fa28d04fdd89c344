"""Law 6: a pipeline's derived backward is the transpose of its forward, and the protocol message by message."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.helpers import KEEPS_ALL, by_torch, clusters, federate, gap, mlp, run
from support.pipelines import COHORT, LR, SPLIT, STEPS, embed, generate, pipeline
from torch import Tensor

from apiece.algebra.composition import algorithm
from apiece.engine.work import Work
from apiece.lifts.lift import Sequential, Threaded, Vectorized


def federated(**settings: Any) -> Any:
    return federate(algorithm(pipeline(), name="pipeline"), mlp(), **settings)


def deltas(data: Any, work: Work, params: Tensor, who: list[int]) -> tuple[dict[int, Tensor], dict[int, Any]]:
    """sent - end of each client's training with torch's own optimizer, and each client's first batch."""
    out, first = {}, {}
    for c in who:
        rows = work.batches(0, 0, data.names[c], data.size(c), STEPS)
        first[c] = data.samples(c).batch(rows[0])
        sent = generate(params[SPLIT:], embed(params[:SPLIT], first[c])).detach()
        net = mlp().double()
        torch.nn.utils.vector_to_parameters(sent.clone(), net.parameters())
        optimizer = torch.optim.SGD(net.parameters(), lr=LR)
        by_torch(net, optimizer, map(data.samples(c).batch, rows))
        out[c] = sent - torch.nn.utils.parameters_to_vector(net.parameters()).detach()
    return out, first


# weightings catch a gradient without its weight, lifts a phase whose answers meet another client
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("lift", [Sequential(), Threaded(2), Vectorized(2)], ids=lambda lift: type(lift).__name__)
def test_backward_is_the_transpose(lift, weighting):
    """Both networks' gradients are those of sum_i w_i <generate(eta, embed(phi, batch_i)), delta_i>; 3 is silent."""
    data, work, params = clusters(), Work(STEPS, None, 4), pipeline().parameters
    ran = run(federated(weighting=weighting), data, work, [COHORT], LR, lift, absent={0: {3}})
    who = [0, 2, 4]
    delta, first = deltas(data, work, params, who)
    weights = {c: data.size(c) if weighting == "samples" else 1.0 for c in who}
    leaf = params.clone().requires_grad_()
    total = sum(w * generate(leaf[SPLIT:], embed(leaf[:SPLIT], first[c])) @ delta[c] for c, w in weights.items()) / sum(
        weights.values()
    )
    (joint,) = torch.autograd.grad(total, leaf)
    assert gap(ran.last, params - joint) < 1e-12
    assert joint[:SPLIT].abs().max() > 1e-3 and joint[SPLIT:].abs().max() > 1e-3


def test_backward_is_the_protocol_message_by_message():
    """PeFLL's rounds: v_i up, theta_i down, delta_i up, then d v_i down and d phi_i up; d eta stays on the server."""
    data, work, params = clusters(), Work(STEPS, None, 4), pipeline().parameters
    ran = run(federated(weighting="uniform"), data, work, [COHORT], LR)
    delta, first = deltas(data, work, params, list(COHORT))
    d_phi, d_eta = torch.zeros(SPLIT), torch.zeros(len(params) - SPLIT)
    for c in COHORT:
        phi = params[:SPLIT].clone().requires_grad_()  # on the client: its descriptor, which it sends
        v = embed(phi, first[c])
        eta, arrived = params[SPLIT:].clone().requires_grad_(), v.detach().requires_grad_()  # on the server: its model
        by_eta, by_v = torch.autograd.grad(generate(eta, arrived), (eta, arrived), delta[c] / len(COHORT))
        d_eta = d_eta + by_eta
        d_phi = (
            d_phi + torch.autograd.grad(v, phi, by_v)[0]
        )  # on the client again: what it was sent, through its embedding
    assert (
        gap(ran.last[SPLIT:], params[SPLIT:] - d_eta) < 1e-12 and gap(ran.last[:SPLIT], params[:SPLIT] - d_phi) < 1e-12
    )


def test_clients_are_sent_their_own_models():
    data, work = clusters(), Work(STEPS, None, 4)
    ran = run(federated(watch=KEEPS_ALL), data, work, [COHORT], 1e-12)
    kept = torch.stack([ran.clients.row(c)[0]["model"] for c in COHORT])
    assert min(gap(a, b) for i, a in enumerate(kept) for b in kept[:i]) > 1e-2


def test_training_lowers_the_clients_loss():
    data, work = clusters(), Work(STEPS, None, 4)
    federated_ = federated(weighting="uniform")
    ran = run(federated_, data, work, [range(5)] * 60, LR)

    def value(params: Tensor) -> float:
        out = 0.0
        for c in range(5):
            batch = data.samples(c).all()
            theta = generate(params[SPLIT:], embed(params[:SPLIT], batch))
            scores = federated_.setup.task.space.outputs(theta, batch[0], federated_.setup.initial_buffers)
            out += float(federated_.setup.task.loss(scores, batch[1])) / 5
        return out

    assert value(ran.last) < 0.7 * value(ran.servers[0].params)


def test_a_round_without_answers_moves_only_the_counter():
    ran = run(federated(), clusters(), Work(STEPS, None, 4), [COHORT, COHORT], LR, absent={0: set(COHORT)})
    assert (
        torch.equal(ran.servers[0].params, ran.servers[1].params)
        and ran.servers[1].round == 1
        and ran.answers[0].answered == []
    )
    assert not torch.equal(ran.servers[1].params, ran.servers[2].params)


def test_a_client_that_misses_the_last_phase_is_absent():
    """Its training is not finite: what it embedded in the first phase counts for nothing."""
    data, work = clusters(), Work(STEPS, None, 4)
    without = run(federated(), data, work, [(0, 2)], LR)
    data.pool[1][data.train[3]] = 0

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(outputs, y) * torch.where((y == 0).all(), float("nan"), 1.0)

    broken = federate(algorithm(pipeline(), name="pipeline"), mlp(), loss=loss)
    ran = run(broken, data, work, [(0, 2, 3)], LR, on_bad_client="skip")
    assert ran.answers[0].skipped == [3] and ran.answers[0].answered == [0, 2]
    assert gap(ran.last, without.last) < 1e-14
