"""Laws of expressions: text round-trips, values fit annotations, refusals say what and where, nothing is evaluated."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
import types

import pytest

from apiece.errors import UserError
from apiece.language.expression import Entry, build, catalog
from apiece.language.grammar import Call, parse

SOURCE = '''
from __future__ import annotations
from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any, Literal
from apiece.errors import UserError, nearest
if TYPE_CHECKING:
    from nowhere import Piece

class Mean: ...

def scaffold(server_lr: float = 1.0):
    """Control variates (Karimireddy et al. 2020).

    More."""
    return ("scaffold", server_lr)

def relaxed_init(beta: float):
    if beta >= 1:
        raise UserError("beta must be below 1, not 1; choose a smaller one.")
    return ("relaxed_init", beta)

def shards(per_client: int = 2, order: Literal["random", "clusters"] = "random", clip: float | None = 10.0,
           keep: bool = False):
    return (per_client, order, clip, keep)

def personal(*patterns: str, **periods: int):
    return (patterns, periods)

def switch(first: Piece, then: Piece = None, at: int | str = 1):
    return {"first": first, "then": then, "at": at}

def uses(mean: Mean | str, weight: Mean = None):
    return (mean, weight)

def mean() -> Mean:
    return Mean()

def hidden(sizes: Sequence[int] = (200, 200), pair: tuple[int, float] = (1, 1.0), names: list[str] = ()):
    return (sizes, pair, names)

def anything(value, other: Any = None):
    return value

def nothing():
    return None

def _private():
    return None
'''


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> types.ModuleType:
    path = tmp_path_factory.mktemp("light") / "light.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("light", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", Call("a")),
        ("a()", Call("a")),
        ("a(1, -2.5, 1e-3, -1E+2, .5, inf, -inf)", Call("a", (1, -2.5, 1e-3, -100.0, 0.5, math.inf, -math.inf))),
        ("a('it''s', \"b\", c, head.weight)", Call("a", ("it's", "b", "c", "head.weight"))),
        ("a(true, false, none, True, None)", Call("a", (True, False, None, True, None))),
        ("a([1, [b, c(2)]], [])", Call("a", ((1, ("b", Call("c", (2,)))), ()))),
        ("a(b(), x=c(d=1), )", Call("a", (Call("b"),), (("x", Call("c", (), (("d", 1),))),))),
        ("fashion-mnist(informal, infinite-x)", Call("fashion-mnist", ("informal", "infinite-x"))),
    ],
)
def test_parse_and_its_round_trip(text, expected):
    assert parse(text) == (expected,)
    assert repr(parse(text)) == repr((expected,))  # 1, 1.0 and true are equal but not the same
    assert repr(parse(str(expected))) == repr((expected,))


def test_text_that_looks_like_another_value_round_trips():
    call = Call("a", ("true", "none", "inf", "1", "", "say \"x\" or 'y'", "a b", "héllo", "a,b)", "layer1.*"))
    assert parse(str(call)) == (call,)


def test_terms_keep_their_order_and_whitespace_is_free():
    assert [call.name for call in parse(" a+b( 1 )\n + c ")] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("", 1, "found the end"),
        ("a +", 4, "found the end"),
        ("a b", 3, "'b'"),
        ("a(1", 4, "found the end"),
        ("a(1 2)", 5, "'2'"),
        ("a(,)", 3, "','"),
        ("a(5x)", 4, "'x'"),
        ("a(x=1, 2)", 8, "follows a named argument"),
        ("a(per_client=1, per-client=2)", 17, "given twice"),
        ("a(data/x.npz)", 7, "put quotes"),
        ("a('open)", 3, "put quotes"),
        ("a\u00a0", 2, "put quotes"),  # a space, but not one of ASCII's
        ("3", 1, "expected a name"),
        ("a(x[0])", 4, "'['"),
        ("a(1 + 1)", 5, "'+'"),
        ("a(__import__('os').system('true'))", 19, "put quotes"),
        ("a(" + "9" * 301 + ")", 3, "301 digits"),
        ("a(1e400)", 3, "too large"),
        ("a(" * 100 + ")" * 100, 43, "deep"),  # the 21st term inside brackets begins at 2 * 21 + 1
        ("a(" + "[" * 5000, 23, "deep"),
    ],
)
def test_nonsense_is_refused_with_its_place(text, place, word):
    with pytest.raises(UserError, match=f"^at character {place}:" if place > 1 else "^[a-z]") as caught:
        parse(text)
    assert word in str(caught.value)


def test_build_gives_results_in_order_whatever_they_are(module):
    assert build("nothing + scaffold + relaxed-init(0.1)", module) == [None, ("scaffold", 1.0), ("relaxed_init", 0.1)]


def test_values_fit_annotations(module):
    (widened,) = build("scaffold(2)", module)
    assert repr(widened) == "('scaffold', 2.0)"
    assert build("shards(per-client=3, order=clusters, clip=none, keep=true)", module) == [(3, "clusters", None, True)]
    assert repr(build("shards(clip=1)", module)) == "[(2, 'random', 1.0, False)]"
    assert build("personal('head.*', fc, body=10, layer1.conv=5)", module) == [
        (("head.*", "fc"), {"body": 10, "layer1.conv": 5})
    ]
    assert build("hidden([1, 2], pair=[1, 2], names=[a])", module) == [((1, 2), (1, 2.0), ["a"])]
    assert build("anything(mean)", module) == ["mean"]
    assert build("anything([1, nothing()])", module) == [(1, None)]


def test_a_bare_name_is_a_term_where_text_is_not_wanted(module):
    scaffold = ("scaffold", 1.0)
    assert build("switch(scaffold, relaxed-init(0.5), at=5)", module) == [
        {"first": scaffold, "then": ("relaxed_init", 0.5), "at": 5}
    ]
    assert build("switch([scaffold, none])", module)[0]["first"] == (scaffold, None)
    ((as_union, as_class),) = build("uses(mean, mean)", module)
    assert type(as_class).__name__ == "Mean"
    assert as_union == "mean"  # text is admitted, so the name is text; mean() would be the term
    assert type(build("uses(mean())", module)[0][0]).__name__ == "Mean"


# a text catches a refusal that names another place or culprit
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scaffold + scafold", r"at character 12: unknown name 'scafold'; did you mean 'scaffold'\? Allowed: .*switch"),
        ("_private", "unknown name '_private'"),
        ("sqrt(4)", "unknown name 'sqrt'"),
        ("nearest(a, b)", "unknown name 'nearest'"),
        ("Mean", "unknown name 'Mean'"),
        ("shards(per_cleint=3)", r"no argument 'per_cleint'; did you mean 'per_client'\? Allowed: clip, keep, order"),
        ("nothing(x=1)", "takes no named arguments"),
        ("relaxed_init", r"missing a required argument: 'beta'; write relaxed_init\(beta\)"),
        ("relaxed_init(1, 2)", "too many positional arguments"),
        ("relaxed_init(1, beta=2)", "multiple values for argument 'beta'"),
        ("shards(2.5)", "per_client must be a whole number, not 2.5"),
        ("shards(1e3)", "per_client must be a whole number, not 1000.0"),
        ("shards(true)", "per_client must be a whole number, not true"),
        ("shards(keep=1)", "keep must be true or false, not 1"),
        ("shards(clip=ten)", "clip must be a number or none, not ten"),
        ("shards(order=randm)", "order must be one of random, clusters, not randm"),
        ("relaxed_init(scaffold(2))", r"beta must be a number, not scaffold\(2\)"),
        ("personal(body=0.5)", "body must be a whole number"),
        ("hidden([1, a])", "sizes must be a list .*, not"),
        ("hidden(pair=[1, 2, 3])", "pair must be a list .*, not"),
        ("hidden(200)", "sizes must be a list .*, not 200"),
        ("uses(x, weight=x)", "weight must be a term that makes a Mean, not x"),
        ("anything(anything(scafold))  + anything(scafold())", r"at character 41: unknown name 'scafold'"),
        ("scaffold + relaxed_init(1)", r"^at character 12: relaxed_init\(1\): beta must be below 1"),
        ("anything(relaxed_init(1))", r"^at character 10: relaxed_init\(1\): beta must be below 1"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(module, text, message):
    with pytest.raises(UserError, match=message):
        build(text, module)


def test_catalog_lists_public_functions_of_the_module_alone(module):
    entries = catalog(module)
    assert [entry.name for entry in entries] == [
        *("scaffold", "relaxed_init", "shards", "personal", "switch", "uses", "mean", "hidden", "anything", "nothing")
    ]
    assert entries[0] == Entry("scaffold", "(server_lr=1.0)", "Control variates (Karimireddy et al. 2020).")
    assert entries[2].signature == "(per_client=2, order=random, clip=10.0, keep=false)"
    assert entries[3][1:] == ("(*patterns, **periods)", "", {})


def test_importing_it_imports_neither_torch_nor_numpy():
    check = "import sys, apiece.language.expression; sys.exit(any(m in sys.modules for m in ('torch', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
