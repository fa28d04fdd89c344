"""Relaxed starts: where they lie, and how they push the server's model on where few clients take part in a round."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.helpers import FullBatch, federate, federation, run
from torch import nn

from apiece.algebra.composition import algorithm
from apiece.algebra.server_optim import Descent, Momentum, gain
from apiece.errors import UserError
from apiece.pieces.relaxed_init import RelaxedInit


def test_a_negative_beta_starts_towards_the_clients_model():
    """As in FedInit's Figure 2: at -0.5 halfway between the server's model and the client's, at -1 at the client's."""
    sent, own = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -2.0])
    view = SimpleNamespace(model=own, fresh=torch.tensor(False))
    assert torch.equal(RelaxedInit(-0.5).start(view, sent), (sent + own) / 2)
    with pytest.raises(UserError, match="above -1"):
        RelaxedInit(-1.0)


def ways(piece, server, in_turn, rounds):
    """How far the server's model goes in each round, where so many clients take part in turn, and the loss has the same
    gradient everywhere, so that each goes 0.1 from its start.
    """
    slope = federate(
        algorithm(piece, name="relaxed"),
        nn.Linear(1, 1, bias=False),
        loss=lambda out, y: -out.mean(),
        server=server,
    )
    clients = federation([np.ones((1, 1))] * in_turn, [np.zeros(1)] * in_turn)
    ran = run(slope, clients, FullBatch(1), [[round % in_turn] for round in range(rounds)], 0.1)
    return torch.cat([server.params for server in ran.servers]).diff().tolist()


@pytest.mark.parametrize(
    "server, gained, in_turn, beta",
    [(Descent(), 1.0, 5, 0.1), (Descent(), 1.0, 8, 0.1), (Momentum(0.5), 2.0, 2, 0.2), (Descent(0.5), 0.5, 10, 0.1)],
)
def test_relaxed_starts_push_the_server_on(server, gained, in_turn, beta):
    """1 / (1 + beta - beta gain / share) times as far as without them, and by the code's form as far."""
    paper, code = (ways(RelaxedInit(beta, form), server, in_turn, 150)[-1] for form in ("paper", "delta"))
    assert gain(server) == pytest.approx(gained)
    assert code == pytest.approx(gained * 0.1)
    assert paper == pytest.approx(gained * 0.1 / (1 + beta - beta * gained * in_turn), rel=1e-3)


@pytest.mark.parametrize("server, in_turn", [(Descent(), 9), (Descent(), 13), (Momentum(0.8), 1), (Momentum(0.8), 3)])
def test_it_doubts_a_share_at_which_the_server_runs_away(server, in_turn):
    went, said = ways(RelaxedInit(), server, in_turn, 200), RelaxedInit().doubt(1 / in_turn, server)
    assert bool(said) == (went[-1] > 1.2 * went[-1 - 2 * in_turn])
    assert not RelaxedInit(aggregate="delta").doubt(1 / in_turn, server)


def test_the_beta_that_it_allows_is_none_to_doubt():
    said = RelaxedInit().doubt(0.05, Descent())
    assert "a round asks 5 % of the clients" in said and said.endswith("or a beta below 0.053.")
    assert RelaxedInit(0.054).doubt(0.05, Descent()) and not RelaxedInit(0.052).doubt(0.05, Descent())
    assert not RelaxedInit(-0.5).doubt(0.05, Descent())
