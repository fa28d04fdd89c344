"""What two runs have in common."""

from __future__ import annotations

import torch

from apiece.experiment.result import Result


def same_models(first: Result, *others: Result) -> None:
    """Assert that the runs end with bitwise the same global model."""
    whole = first.model()
    for other in others:
        model = other.model()
        assert list(model) == list(whole)
        assert all(torch.equal(model[name], whole[name]) for name in whole)
