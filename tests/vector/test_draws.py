"""What a module draws: the numbers are the documented ones, chance as it should be, and each function means torch's."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn

from apiece.errors import UserError
from apiece.randomness import generator
from apiece.vector.drawing import Drawing, Stream
from apiece.vector.draws import Draws, bits

KEY = torch.tensor([0x12345678, 0x9ABCDEF0])
MANY = 1 << 17


def key_of(*words: object) -> Tensor:
    return torch.from_numpy(generator(0, *words).integers(2**32, size=2))


def transcribed(key: Tensor, place: int, count: int) -> np.ndarray:
    """The formula at the head of `draws.py`, in words of 32 bits that overflow, as the hash is published."""

    def mix(x: np.ndarray) -> np.ndarray:
        x = (x ^ x >> np.uint32(16)) * np.uint32(0x21F0AAAD)
        x = (x ^ x >> np.uint32(15)) * np.uint32(0x735A2D97)
        return x ^ x >> np.uint32(15)

    first, second = key.numpy().astype(np.uint32)
    return mix(mix(np.arange(count, dtype=np.uint32) ^ first) ^ second ^ mix(np.array([place]).astype(np.uint32)))


@pytest.mark.parametrize("place", [1, 2, 1000, -3])
def test_the_numbers_are_the_documented_ones(place):
    assert np.array_equal(bits(KEY, place, 999).numpy(), transcribed(KEY, place, 999))


def test_they_are_the_same_under_vmap_and_recorded():
    keys = torch.stack([key_of(k) for k in range(5)])
    alone = torch.stack([bits(key, 3, 50) for key in keys])
    assert torch.equal(torch.func.vmap(lambda key: bits(key, 3, 50))(keys), alone)
    recorded = torch.fx.experimental.proxy_tensor.make_fx(lambda key: bits(key, 3, 50))(keys[0])
    assert torch.equal(recorded(keys[1]), alone[1])


# --- chance: seeds are fixed, so that each of these is a fact ---------------------------------------------------------
def uniform(counts: np.ndarray) -> float:
    """The chance of counts as uneven as these where all are equally likely."""
    return float(stats.chisquare(counts).pvalue)


def streams() -> dict[str, Tensor]:
    """Numbers [64, n] of neighbors: clients, rounds, seeds, local steps, further trainings and places."""
    taken = {
        "clients": [key_of("model", 0, f"client-{k}") for k in range(64)],
        "rounds": [key_of("model", k, "client-0") for k in range(64)],
        "seeds": [torch.from_numpy(generator(k, "model", 0, "a").integers(2**32, size=2)) for k in range(64)],
    }
    stream = Stream(KEY)
    taken["steps"] = list(map(stream.steps(64), range(64)))
    taken["trainings"] = [stream.steps(1)(0) for _ in range(64)]
    rows = {what: torch.stack([bits(key, 1, 4096) for key in keys]) for what, keys in taken.items()}
    return rows | {"places": torch.stack([bits(KEY, place, 4096) for place in range(1, 65)])}


@pytest.mark.parametrize("what", ["clients", "rounds", "seeds", "steps", "trainings", "places"])
def test_neighbors_are_independent(what):
    rows = streams()[what]
    apart = np.corrcoef(rows.double().numpy() * 2.0**-32)[np.triu_indices(64, 1)] * 64  # of 4096: standard normal
    assert abs(apart.mean()) < 0.1 and abs(apart.std() - 1) < 0.05 and abs(apart).max() < 5
    assert uniform(np.bincount((rows >> 24).flatten().numpy(), minlength=256)) > 1e-3
    for bit in (0, 15, 31):  # two rows agree in a bit as often as not
        seen = (rows >> bit & 1).numpy()
        pairs = np.array([(seen[i] == seen[j]).mean() for i, j in combinations(range(64), 2)])
        assert abs(pairs - 0.5).max() < 5 / 128 and abs((pairs - 0.5).std() * 128 - 1) < 0.05
    first = rows[:, :256].flatten()  # and the next number of a row is not told by the last
    table = np.bincount(((first[:-1] >> 28) * 16 + (first[1:] >> 28)).numpy(), minlength=256)
    assert uniform(table) > 1e-3


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_masks_have_the_mean_and_variance_of_their_p(p):
    with Drawing(KEY):
        out = F.dropout(torch.ones(MANY, dtype=torch.float64), p)
    assert set(out.unique().tolist()) <= {0.0, 1 / (1 - p)}
    error = (p / (1 - p) / MANY) ** 0.5
    assert abs(out.mean() - 1) < 4 * error
    assert abs(out.var() - p / (1 - p)) < 0.05 * p / (1 - p)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_uniform_and_normal_numbers(dtype):
    with Drawing(KEY):
        u, z = torch.rand(MANY, dtype=dtype), torch.randn(MANY, dtype=dtype)
    assert u.dtype == z.dtype == dtype and 0 <= u.min() and u.max() < 1
    assert uniform(np.bincount((u.double() * 64).long().numpy(), minlength=64)) > 1e-3
    if dtype.itemsize > 2:  # others round to steps of their own
        assert stats.kstest(z.double().numpy(), "norm").pvalue > 1e-3
        assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 4 / MANY**0.5
    assert abs(z.double().mean()) < 4 / MANY**0.5 + 1e-3 and abs(z.double().std() - 1) < 0.01


def test_a_mask_is_the_same_in_every_type_and_of_a_longer_batch():
    def mask(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        with Drawing(KEY):
            return F.dropout(torch.ones(shape, dtype=dtype), 0.4) > 0

    assert torch.equal(mask(8, 5), mask(8, 5, dtype=torch.float64))
    assert torch.equal(mask(8, 5), mask(8, 5, dtype=torch.bfloat16))
    assert torch.equal(mask(8, 5), mask(13, 5)[:8])


# --- what each function means ---------------------------------------------------------------------------------------
def test_channels_are_dropped_whole():
    for drop, size in ((F.dropout1d, (40, 9, 5)), (F.dropout2d, (40, 9, 3, 4)), (F.dropout3d, (40, 9, 2, 3, 4))):
        with Drawing(KEY):
            seen = drop(torch.ones(size), 0.5).flatten(2)
        assert torch.equal(seen.amin(2), seen.amax(2)) and 0.4 < (seen > 0).float().mean() < 0.6
    with Drawing(KEY):
        seen = F.feature_alpha_dropout(torch.ones(40, 9, 7), 0.5, True)
    assert torch.equal(seen.amin(2), seen.amax(2)) and len(seen.unique()) == 2


def test_alpha_dropout_keeps_mean_and_variance_and_has_torchs_two_values():
    x = torch.randn(MANY, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    theirs = F.alpha_dropout(torch.ones(99, dtype=torch.float64), 0.3, True).unique()
    with Drawing(KEY):
        ours, moved = (
            F.alpha_dropout(torch.ones(99, dtype=torch.float64), 0.3, True).unique(),
            F.alpha_dropout(x, 0.3, True),
        )
    assert torch.allclose(ours, theirs, rtol=1e-14)
    assert abs(moved.mean()) < 0.01 and abs(moved.std() - 1) < 0.01


@pytest.mark.parametrize("drop", [F.dropout, F.alpha_dropout, F.dropout2d], ids=lambda drop: drop.__name__)
def test_all_nothing_and_in_place(drop):
    x = torch.arange(24.0).view(2, 3, 2, 2) + 1
    with Drawing(KEY) as drawing:
        assert drop(x, 0.0, True) is x and drop(x, 0.5, False) is x and not drawing.draws.count
        assert not drop(x, 1.0, True).any()
        with pytest.raises(ValueError, match="between 0 and 1"):
            drop(x, 1.5, True)
    with Drawing(KEY):
        new = drop(x, 0.5, True)
    with Drawing(KEY):
        own = x.clone()
        assert drop(own, 0.5, True, inplace=True) is own and torch.equal(own, new)


def masked(**more: Any) -> Tensor:
    """Attention by its formula, its weights dropped by the draw that comes first."""
    q, k, v = (x.repeat_interleave(len(QUERY[0]) // len(x[0]), 1) for x in (QUERY, KEYS, VALUES))
    scores = q @ k.mT * more.get("scale", q.shape[-1] ** -0.5)
    if more.get("is_causal"):
        scores = scores.masked_fill(~torch.ones(5, 7, dtype=torch.bool).tril(), -torch.inf)
    if (mask := more.get("attn_mask")) is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1)
    return weights * (Draws(KEY).chosen(weights.shape, 0.6).double() / 0.6) @ v


QUERY, KEYS, VALUES = (
    torch.randn(2, heads, length, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(length))
    for heads, length in ((4, 5), (2, 7), (2, 7))
)
SEEN = torch.arange(35).view(5, 7) % 3 > 0


@pytest.mark.parametrize("more", [{}, {"is_causal": True}, {"attn_mask": SEEN}, {"scale": 0.3}], ids=str)
def test_attentions_weights_are_dropped(more):
    with Drawing(KEY) as drawing:
        out = F.scaled_dot_product_attention(QUERY, KEYS, VALUES, dropout_p=0.4, enable_gqa=True, **more)
        assert drawing.draws.count == 1
        plain = F.scaled_dot_product_attention(QUERY, KEYS, VALUES, enable_gqa=True, **more)
        assert drawing.draws.count == 1
    assert torch.allclose(out, masked(**more), rtol=1e-12)
    assert torch.equal(plain, F.scaled_dot_product_attention(QUERY, KEYS, VALUES, enable_gqa=True, **more))


@pytest.mark.parametrize("told", [True, False])
def test_multi_head_attention_drops_its_weights(told):
    attend, x = nn.MultiheadAttention(8, 2, dropout=0.5), torch.randn(5, 3, 8)
    state = torch.get_rng_state()
    with Drawing(KEY) as drawing:
        first = attend(x, x, x, need_weights=told)[0]
    with Drawing(KEY):
        again = attend(x, x, x, need_weights=told)[0]
    assert torch.equal(first, again) and drawing.draws.count == 1 and torch.equal(state, torch.get_rng_state())
    assert not torch.allclose(first, attend.eval()(x, x, x, need_weights=told)[0])


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("form", [{}, {"bidirectional": True, "batch_first": True}, {"bias": False}], ids=str)
def test_recurrent_layers_with_dropout_between_them(cell, form):
    net = cell(4, 3, num_layers=3, dropout=0.5, **form).double()
    x = torch.randn(6, 5, 4, dtype=torch.float64)
    whole = net.eval()(x)
    net.train().dropout = 1e-12  # of nothing
    with Drawing(KEY) as drawing:
        almost = net(x)
        assert drawing.draws.count == 2
    flat = torch.utils._pytree.tree_leaves
    assert all(torch.allclose(one, other, rtol=1e-9) for one, other in zip(flat(whole), flat(almost), strict=True))
    net.dropout, state = 0.5, torch.get_rng_state()
    with Drawing(KEY):
        dropped = net(x)[0]
    assert not torch.allclose(dropped, whole[0]) and torch.equal(state, torch.get_rng_state())


FILLED = {
    "bernoulli_": lambda like: torch.empty_like(like).bernoulli_(0.3),
    "bernoulli_ of chances": lambda like: torch.zeros_like(like).bernoulli_(torch.full_like(like, 0.3)),
    "bernoulli": lambda like: torch.bernoulli(torch.full_like(like, 0.3)),
    "bernoulli of p": lambda like: like.bernoulli(0.3),
    "uniform_": lambda like: like.new_empty(like.shape).uniform_(-1, 1),
    "normal_": lambda like: torch.empty(like.shape).normal_(2, 3),
    "normal": lambda like: torch.normal(2.0, 3.0, like.shape),
    "normal of means": lambda like: torch.normal(like + 2, torch.full_like(like, 3)),
    "rand": lambda like: torch.rand(*like.shape, dtype=like.dtype),
    "rand_like": torch.rand_like,
    "randn": lambda like: torch.randn(like.shape),
    "randn_like": torch.randn_like,
}


@pytest.mark.parametrize("name", FILLED)
def test_what_else_torch_draws(name):
    """In the same distribution as torch's, from the stream alone, and for many clients at once each its own."""
    like = torch.zeros(300, 100)
    state = torch.get_rng_state()

    def drawn(key: Tensor) -> Tensor:
        with Drawing(key) as drawing:
            out = FILLED[name](like)
        assert drawing.draws.count
        return out

    ours = drawn(KEY)
    assert torch.equal(ours, drawn(KEY)) and torch.equal(state, torch.get_rng_state())
    keys = torch.stack([KEY, key_of("another")])
    assert torch.allclose(torch.func.vmap(drawn)(keys), torch.stack([ours, drawn(keys[1])]), rtol=1e-6, atol=1e-6)
    torch.manual_seed(0)
    theirs = FILLED[name](like)
    assert ours.dtype == theirs.dtype and abs(ours.mean() - theirs.mean()) < 0.06
    assert abs(ours.std() / theirs.std() - 1) < 0.02 and abs(ours.max() - theirs.max()) < 2


def test_a_generator_of_the_modules_own_is_refused():
    with Drawing(KEY), pytest.raises(UserError, match="a generator of its own"):
        torch.rand(3, generator=torch.Generator())
