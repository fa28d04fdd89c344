"""A client predicts only the classes of its training samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from apiece.algebra.composition import Algorithm, algorithm
from apiece.algebra.piece import Piece
from apiece.algebra.view import View
from apiece.errors import UserError
from apiece.pieces.samples import one_class


@dataclass(frozen=True)
class ClassMask(Piece):
    """score_c(x) <- -inf for every class c without a training sample on the client.

    Scott et al., "PeFLL", ICLR 2024, section 4: "it can select only the outputs for those classes". The authors' code
    multiplies these scores by 0, which can exceed the negative score of a class that is present. Training is unchanged.
    Results with and without the mask are not comparable, so the accuracy without it is recorded too. Stored and sent:
    nothing. An unseen client is masked by its own training labels.
    """

    without = "unmasked"

    excludes = {"Neighbors": "each decides alone what a client predicts"}

    @classmethod
    def neutral(cls):
        return "it acts on predictions alone, and masks nothing only where a client has samples of every class"

    def predict(self, view: View):
        if not one_class(view):
            raise UserError("class_mask masks the classes that a client lacks: labels must be classes, one a sample.")
        y = view.data.all()[1]
        if not len(y):
            return None

        def scores(x: Any) -> Tensor:
            out = view.task.outputs(view.end, x)
            classes = torch.arange(out.shape[-1], device=out.device)
            return out.masked_fill((classes != y[:, None]).all(0), -torch.inf)

        return scores


def class_mask() -> Algorithm:
    """A client predicts only the classes of its training samples, under any algorithm (Scott et al. 2024).

    Use it where a client only ever meets classes of which it has training samples. Compare its accuracy only with
    others under the mask.
    """
    return algorithm(ClassMask(), name="class_mask")
