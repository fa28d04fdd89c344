"""Laws of augmentation: neutral draws change nothing, every draw is the paper's picture, and vmap is a loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from apiece.data.batches import Augmentation, channels_first, moved, normalize
from apiece.errors import UserError
from apiece.randomness import generator

X = torch.from_numpy(generator(0, "x").integers(1, 256, size=(6, 3, 8, 8), dtype=np.uint8))


def test_channels_first():
    gray, color = np.arange(32, dtype=np.uint8).reshape(2, 4, 4), np.arange(96, dtype=np.uint8).reshape(2, 4, 4, 3)
    assert channels_first(gray).shape == (2, 1, 4, 4) and channels_first(color).shape == (2, 3, 4, 4)
    assert channels_first(color)[1, 2, 3, 0] == color[1, 3, 0, 2] and channels_first(color).dtype == torch.uint8


def test_normalize_by_its_own_moments_is_standard():
    x = X / 255
    mean, std = x.mean(dim=(0, 2, 3)).tolist(), x.std(dim=(0, 2, 3), correction=0).tolist()
    for result in (normalize(X, mean, std), normalize(x, mean, std)):
        assert result.mean(dim=(0, 2, 3)).abs().max() < 1e-5
        assert torch.allclose(result.std(dim=(0, 2, 3), correction=0), torch.ones(3), atol=1e-5)


MIDDLE = torch.full((6, 2), 2)
OFFSETS = torch.tensor([[0, 0], [2, 2], [4, 4], [0, 4], [1, 3], [2, 0]])


def test_a_flip_is_its_own_inverse_and_acts_where_told():
    flipped = torch.tensor([True, False, True, False, False, True])
    once = moved(X, flipped, MIDDLE, 2)
    assert torch.equal(moved(once, flipped, MIDDLE, 2), X)
    assert torch.equal(once[1], X[1]) and torch.equal(once[0], X[0].flip(-1))


@pytest.mark.parametrize("flipped", (torch.zeros(6, dtype=torch.bool), torch.tensor([True, False] * 3)))
@pytest.mark.parametrize("size", ((8, 8), (5, 8)))
def test_a_crop_shifts_the_mirrored_image_by_the_offset(flipped, size):
    height, width = size
    x = X[:, :, :height]
    mirrored = torch.stack([image.flip(-1) if back else image for image, back in zip(x, flipped)])
    padded = torch.nn.functional.pad(mirrored, (2, 2, 2, 2))
    result = moved(x, flipped, OFFSETS, 2)
    for i, (row, column) in enumerate(OFFSETS.tolist()):
        assert torch.equal(result[i], padded[i, :, row : row + height, column : column + width])
    assert torch.equal(result[1], mirrored[1])  # (padding, padding) is the middle


def test_nothing_drawn_is_nothing_changed():
    for still in (Augmentation(flip=0, padding=0), Augmentation(flip=0, crop=0)):
        assert torch.equal(still(X, still.draw(generator(0, "draw"), 6)), X)


def test_draws_follow_their_probabilities_and_their_seed():
    augment = Augmentation(flip=0.3, padding=4, crop=0.5)
    draws = augment.draw(generator(0, "draw"), 20000)
    assert draws.flipped.float().mean().item() == pytest.approx(0.3, abs=0.02)
    still = (draws.offsets == 4).all(dim=1).float().mean().item()
    assert still == pytest.approx(0.5 + 0.5 / 81, abs=0.02)
    assert draws.offsets.min() == 0 and draws.offsets.max() == 8
    again = augment.draw(generator(0, "draw"), 20000)
    assert torch.equal(draws.offsets, again.offsets) and torch.equal(draws.flipped, again.flipped)


def test_vmap_is_a_loop():
    augment = Augmentation()
    x = torch.stack([X, X.flip(0)])
    draws = [augment.draw(generator(0, i), 6) for i in range(2)]
    stacked = type(draws[0])(*(torch.stack(each) for each in zip(*draws)))
    together = torch.vmap(lambda x, d: normalize(augment(x, d), (0.5,) * 3, (0.2,) * 3))(x, stacked)
    for i in range(2):
        assert torch.equal(together[i], normalize(augment(x[i], draws[i]), (0.5,) * 3, (0.2,) * 3))


def test_bad_probabilities_are_refused():
    with pytest.raises(UserError, match="probabilities"):
        Augmentation(flip=1.5)
