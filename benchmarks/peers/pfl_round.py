"""Apple's pfl on the given problem, its own loop, which waits between rounds.

python pfl_round.py FOLDER THREADS
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import torch
from pfl_loop import rounds
from problem import Conversation, at, flat, read
from torch import Tensor, nn


class Channels(nn.Sequential):
    """The given network on images whose channels come last, as in pfl's benchmark."""

    def forward(self, x: Tensor) -> Tensor:
        """The scores of a batch [B, H, W, C]."""
        return super().forward(x.permute(0, 3, 1, 2))


def main() -> None:
    """After each round send an answer; before the next wait for a request and set the initial weights again."""
    given = read(Path(sys.argv[1]))
    problem = given.problem
    torch.set_num_threads(int(sys.argv[2]))
    users = [(x.permute(0, 2, 3, 1).contiguous(), y) for x, y in map(given.client, range(problem.cohort))]
    network = Channels(*given.module())
    conversation = Conversation(pfl=version("pfl"), torch=torch.__version__)

    def begin() -> None:
        at(network, given.initial)
        conversation.wait()

    def end() -> None:
        conversation.answer(lambda: flat(network.parameters()))

    rounds(network, users, problem.batch, 1, problem.lr, begin, end)


if __name__ == "__main__":
    main()
