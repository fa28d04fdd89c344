"""Every argument of everything that has a name, at values that nobody means: refused in one sentence, or it is made."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.outer import config

from apiece.algebra.broadcast import FederationFacts
from apiece.config.assemble import chosen_algorithm, federated_of
from apiece.config.augmentation import augmentation
from apiece.config.model import make_model
from apiece.config.names import SIDES, SOURCES, one
from apiece.config.splitting import make_split
from apiece.data.arrays import Dataset, from_arrays
from apiece.errors import UserError
from apiece.language import algorithms
from apiece.language.expression import Functions, functions
from apiece.networks import models

ODD = (
    *("0", "-1", "1", "2", "0.5", "1.5", "-0.5", "inf", "-inf", "1e-300", "1e300", "-1e300", "999999999999"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "9" * 300, "word", '""', "true", "none"),
    *("[]", "[0]", "[-1]", "[1e300]", "[word, 3]", "fedavg()", "nothing(3)", '"*"', '"[a-"', '"é"'),
)
SHAPE = (1, 8, 8)
SETTING = FederationFacts(SHAPE, 3, [f"client-{i}" for i in range(4)], range(4), 0)


@functools.cache
def data() -> Dataset:
    images = np.arange(60 * 64, dtype=np.uint8).reshape(60, 8, 8)
    return from_arrays("odd", images, np.arange(60) % 3, natural_train=np.arange(60) % 4)


def schedule(text: str) -> None:
    made = one("schedule", text)
    assert all(math.isfinite(made(t, 3)) for t in range(3))


def optimizer(text: str) -> None:
    side = "optimizer" if text.partition("(")[0] in SIDES["optimizer"] else "server"
    federated_of(replace(TINY, **{side: text}), SETTING)


TINY = config(model="softmax_regression")
KINDS: dict[str, tuple[Functions, Callable[[str], Any]]] = {
    "algorithm": (algorithms.NAMED, lambda text: federated_of(replace(TINY, algorithm=text), SETTING)),
    "split": (SOURCES["split"], lambda text: make_split(data(), text, 4, 0)),
    "optimizer": (SOURCES["optimizer"], optimizer),
    "schedule": (SOURCES["schedule"], schedule),
    "augmentation": (SOURCES["augment"], lambda text: augmentation(text, SHAPE)),
    "model": (functions(models), lambda text: make_model(text, SHAPE, 3)),
    "text model": (SOURCES["model"], lambda text: one("model", text)),
}
NAMES = [(kind, name) for kind, (source, _) in KINDS.items() for name in source]


def odd_terms(name: str, function: Callable[..., Any]) -> Iterator[str]:
    """The named function's calls with one argument at each odd value, and with one too many."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name not in ("shape", "classes"):
            yield from (f"{name}({parameter.name}={value})" for value in ODD)
    yield from (f"{name}({', '.join(['1'] * 20)})", f"{name}(nothing=1)")


# a name catches an argument of its own that ends in a traceback
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), NAMES, ids=[f"{kind} {name}" for kind, name in NAMES])
def test_odd_arguments_are_refused_in_one_sentence_or_something_is_made(kind, name):
    source, make = KINDS[kind]
    refused = 0
    for text in odd_terms(name, source[name]):
        try:
            make(text)
        except UserError as error:
            refused += 1
            said = str(error)
            assert said and "\n" not in said and len(said) < 2000, text
    assert refused >= 2


ENDLESS = [name for name in algorithms.NAMED if name != "centralized"]


# a name catches a number of its own that is compared in a way that NaN passes
@pytest.mark.parametrize("name", ENDLESS)
def test_no_number_of_an_algorithm_may_be_none(name):
    """What a program may give and no text can say."""
    function = algorithms.NAMED[name]
    for parameter in inspect.signature(function).parameters.values():
        if isinstance(parameter.default, float):
            for value in (math.nan, -math.inf, -1e300):
                with pytest.raises(UserError):
                    function(**{parameter.name: value})


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("algorithm", "relaxed_init(beta=-5)", "give 0 or more"),
        ("algorithm", f"relaxed_init({'9' * 3900})", "3900 digits"),
        ("algorithm", "relaxed_init(1e400)", "too large"),
        ("algorithm", "pfedme(lam=0)", "lam and step_size above 0"),
        ("algorithm", "fedreg(steps=0)", "steps and batches are 1 or more"),
        ("optimizer", "adamw(epsilon=inf)", "epsilon=inf must be a finite number"),
        ("split", "dirichlet(1e-300)", "from 1e-06"),
        ("augmentation", "crop(999)", "give less than 8"),
        ("augmentation", "crop(8)", "give less than 8"),
        ("model", "mlp(hidden=[999999999])", "parameters.*take a smaller one"),
        ("model", "mlp(hidden=[99999999999999999999999])", "too large for a whole number"),
        ("model", "mlp(hidden=[9223372036854775807])", "more memory than there is"),
        ("model", "mlp(hidden=wide)", "hidden must be a list"),
    ],
)
def test_what_used_to_be_taken_is_refused(kind, text, said):
    with pytest.raises(UserError, match=said):
        KINDS[kind][1](text)


def test_the_largest_crop_and_the_least_alpha_are_taken():
    assert augmentation("crop(7)", SHAPE).padding == 7
    assert make_split(data(), "dirichlet(1e-6)", 2, 0).train
    assert chosen_algorithm("relaxed_init(beta=0)").pieces
