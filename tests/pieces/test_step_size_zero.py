"""A step size of 0 moves nothing by local steps and breaks nothing: schedules begin or end there, groups rest."""

from __future__ import annotations

import pytest
import torch
from support import tiers
from support.recipes import RECIPES, SMALL

from apiece import federate


# a recipe catches a division by the step size in its pieces
@pytest.mark.parametrize("recipe", tiers.but(("scaffold, difference", "fedcm + relaxed_init", "pfedhn"), RECIPES))
def test_rounds_without_a_step_size_stay_finite(recipe):
    result = federate(**SMALL | {"rounds": 2, "eval_every": 2} | RECIPES[recipe] | {"lr": 0.0, "schedule": "constant"})
    assert all(torch.isfinite(tensor).all() for tensor in result.model().values() if tensor.is_floating_point())


@pytest.mark.parametrize("algorithm", ["fedreg(steps=1)", "fedcm"])
def test_a_group_may_rest(algorithm):
    """Personal parameters without a step size stay what they were, whatever divides by it."""
    resting = f"fedavg_p(personal='head.*', inner_personal=0.0) + {algorithm}"
    result = federate(**SMALL | {"rounds": 2, "algorithm": resting})
    space, first = result.experiment.federated.setup.task.space, result.experiment.federated.setup.initial
    own, initial = result.model(result.clients.touched()[0]), space.unravel(first)
    assert torch.equal(own["head.weight"], initial["head.weight"])
    assert not torch.equal(own["fc1.weight"], initial["fc1.weight"])
