"""What the server sends: its own vector (the identity), or a model written for each client by a pipeline.

The server's gradient is the transpose of the broadcast at the clients' deltas. For the identity the transpose is the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from driftless.piece import Rows, Weighted


class Sent(NamedTuple):
    """What was sent: one model for all or a row for each, and the transpose (answer -> the server's gradient)."""

    model: Tensor | None  # [D], to every client
    each: dict[int, Tensor] | None  # client -> [D], where models differ: who has none takes no part
    back: Callable[[Any], Tensor]


@dataclass(frozen=True)
class Identity:
    """Every client receives the server's vector; the transpose is the weighted mean of the deltas."""

    delta = Weighted

    def send(self, params: Tensor, cohort: Any, shared: Any) -> Sent:
        return Sent(params, None, lambda answer: answer.mean.delta)

    def initial(self, theta: Tensor) -> Tensor:
        """The server's parameters at the start, for an initial model theta [D]."""
        return theta


@dataclass(frozen=True)
class Pipeline:
    """on_client(embed), then on_server(generate): client i receives generate(eta, v_i), v_i = embed(phi, its samples).

    The server's parameters are [phi, eta], `split` the length of phi. The transpose runs the same way back: deltas through
    the generator on the server give d eta and d v_i; v's part goes down to client i, which answers with its d phi.
    `embed(phi, batch) -> [E]` and `generate(eta, v) -> [D]` are pure functions of flat vectors.
    """

    embed: Callable[[Tensor, Any], Tensor]
    generate: Callable[[Tensor, Tensor], Tensor]
    parameters: Tensor
    split: int

    delta = Rows

    def initial(self, theta: Tensor) -> Tensor:
        return self.parameters.clone()

    def send(self, params: Tensor, cohort: Any, shared: Any) -> Sent:
        phi, eta = params[: self.split], params[self.split :]
        up = cohort.map("embed", shared._replace(model=phi))
        answered = up.answered
        if not answered:
            return Sent(None, {}, lambda answer: torch.zeros_like(params))
        v = torch.stack([up.rows[client].x for client in answered])
        generate = torch.func.vmap(self.generate, in_dims=(None, 0))
        models, transpose = torch.func.vjp(generate, eta, v)[:2]

        def back(answer: Any) -> Tensor:
            weight = torch.zeros(len(answered), dtype=params.dtype)
            delta = torch.zeros_like(models)
            for row, client in enumerate(answered):
                if client in answer.rows:
                    delta[row], weight[row] = answer.rows[client].delta.x, answer.rows[client].weight.x
            d_eta, d_v = transpose(weight[:, None] / weight.sum() * delta)
            down = {client: d_v[row] for row, client in enumerate(answered) if client in answer.rows}
            last = cohort.only(list(down)).map("embed_back", shared._replace(model=phi), down)
            return torch.cat([last.mean.x, d_eta])

        return Sent(None, dict(zip(answered, models, strict=True)), back)
