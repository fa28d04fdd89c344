"""Laws of pixel noise: none of it is the clean data, and some of it is the formula."""

from __future__ import annotations

import numpy as np
import pytest

from apiece.data import noise
from apiece.randomness import generator

RNG = generator(0, "noise test")
COLOR, GRAY = (
    RNG.integers(0, 256, size=(50, 4, 4, 3), dtype=np.uint8),
    RNG.integers(0, 256, size=(50, 4, 4), dtype=np.uint8),
)
LABELS = RNG.integers(0, 5, size=50)


@pytest.mark.parametrize("images", [COLOR, GRAY, (COLOR / 255).astype(np.float32)], ids=["color", "gray", "float"])
def test_strength_zero_is_the_clean_data_bitwise(images):
    channels = 3 if images.ndim == 4 else 1
    clean = noise.draw(generator(0, "noise"), 4, channels, 5, rgb=0, brightness=0)
    result = noise.noisy(images, LABELS, clean.gains[2], clean.offsets)
    assert result.dtype == images.dtype and result is not images
    assert result.tobytes() == images.tobytes()


def test_bytes_and_floats_agree_with_the_formula_to_half_a_level():
    drawn = noise.draw(generator(0, "noise"), 4, 3, 5, rgb=0.3, brightness=0.2)
    x = COLOR / 255
    expected = np.clip(x * (1 + drawn.gains[1]) + drawn.offsets[LABELS][:, None, None, None], 0, 1)
    assert noise.noisy(x, LABELS, drawn.gains[1], drawn.offsets) == pytest.approx(expected)
    assert np.abs(noise.noisy(COLOR, LABELS, drawn.gains[1], drawn.offsets) / 255 - expected).max() <= 0.5 / 255 + 1e-9


def test_each_client_and_each_class_has_its_own_strength():
    drawn = noise.draw(generator(0, "noise"), 2000, 3, 3000, rgb=0.1, brightness=0.2)
    assert drawn.gains.shape == (2000, 3) and drawn.offsets.shape == (3000,)
    assert drawn.gains.std() == pytest.approx(0.1, rel=0.05) and drawn.offsets.std() == pytest.approx(0.2, rel=0.05)
    assert abs(drawn.gains.mean()) < 0.01 and abs(drawn.offsets.mean()) < 0.02


def test_the_input_is_left_alone():
    before = GRAY.copy()
    noise.noisy(GRAY, LABELS, np.array([0.5]), np.full(5, 0.2))
    assert np.array_equal(before, GRAY)
