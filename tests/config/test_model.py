"""Which model `auto` takes."""

from __future__ import annotations

import pytest

from apiece.config.model import make_model
from apiece.errors import UserError


@pytest.mark.parametrize("shape", [(5,), (2, 6), (1, 2, 6), (3, 7, 40), (1, 4, 4, 4)])
def test_auto_takes_a_perceptron_for_what_is_no_image_or_too_small_a_one(shape):
    assert make_model("auto", shape, 3).state_dict().keys() == make_model("mlp", shape, 3).state_dict().keys()


@pytest.mark.parametrize(("side", "name"), [(8, "cnn"), (15, "cnn"), (16, "cnn_fedcog")])
def test_auto_takes_the_largest_network_that_an_image_bears(side, name):
    shape = (3, side, side + 4)
    chosen, named = (make_model(text, shape, 3) for text in ("auto", name))
    assert [p.shape for p in chosen.parameters()] == [p.shape for p in named.parameters()]


def test_a_network_of_images_named_for_too_small_ones_is_refused():
    with pytest.raises(UserError, match="cnn needs images of 8x8 or more, not 2x6"):
        make_model("cnn", (1, 2, 6), 3)
