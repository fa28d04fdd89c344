"""Models are measured on held-out training samples where the run is to choose a setting."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from apiece import UserError, federate
from apiece.config.assemble import assemble
from apiece.config.settings import Config
from apiece.data.federation import tensors

CONFIG = {"data": "digits", "clients": 4, "validation": 0.25, "rounds": 3, "steps": "5", "drift": "none"}


@pytest.mark.parametrize("more", [{}, {"noise_rgb": 0.1}])
def test_validation_takes_the_place_of_the_test_set(more):
    result = federate(measure_on="validation", **CONFIG, **more)
    dataset, split = result.experiment.dataset, result.experiment.split
    assert not set(np.concatenate(split.train)) & set(np.concatenate(split.validation))
    module = result.experiment.module
    module.load_state_dict(result.model())

    def accuracy(rows):
        rows = np.asarray(rows)
        found = module.eval()(tensors(dataset, dataset.x_train[rows])).argmax(1).numpy()
        return float((found == dataset.y_train[rows]).mean())

    with torch.no_grad():
        assert result.metrics[-1]["global_accuracy"] == pytest.approx(accuracy(np.concatenate(split.validation)))
        for client, rows in enumerate(split.validation):
            assert result.accuracy[split.names[client]] == pytest.approx(accuracy(rows))


def test_training_is_the_same_and_a_run_that_measures_on_the_test_set_too():
    test, validation = federate(**CONFIG), federate(measure_on="validation", **CONFIG)
    assert all(torch.equal(a, b) for a, b in zip(test.model().values(), validation.model().values()))
    assert test.metrics[-1]["global_accuracy"] != validation.metrics[-1]["global_accuracy"]


def test_nothing_held_out_is_refused():
    with pytest.raises(UserError, match="measure_on=validation needs validation, the share that is held out: it is 0"):
        assemble(Config(measure_on="validation"))
