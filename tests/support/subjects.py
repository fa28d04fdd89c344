"""Every algorithm and composition there is, found and not listed: by catalog, by oracle, by recipe, by the docs."""

from __future__ import annotations

import inspect
import re
import shlex
from dataclasses import replace

from oracles import ORACLES
from torch import nn

from apiece.algebra.composition import Algorithm
from apiece.config.assemble import assemble, chosen_algorithm
from apiece.contract import Report, check
from apiece.contract.trial import CLASSES, FEATURES, HIDDEN
from apiece.errors import UserError
from apiece.language import algorithms as named
from apiece.language.expression import catalog
from apiece.language.grammar import parse, parse_list
from support import ROOT
from support.adapters import dual
from support.recipes import RECIPES
from support.wired import CONFIG

COMPOSITIONS = ROOT / "docs" / "compositions.md"
BRIEF = {"steps": 3, "samples": 12, "epochs": 1, "alpha": 3, "every": 3}  # whole numbers that defaults are lowered to
NEEDED = {  # the model whose numbers are counted has no norm layer and no adapter: these stand for them
    "fedbn": "norm='*bias'",
    "fedit": "adapters='*'",
    "ffa_lora": "frozen='*bias'",
    "fedsa_lora": "personal='*bias'",
    "rolora": "first='*bias', second='*weight'",
    "fed_dpa": "local='*bias'",
}
Names = tuple[str, ...]


def subjects() -> dict[Names, str]:
    """Every algorithm and composition, by the names it is the sum of: the expression that it is measured as."""
    sums = [terms for oracle in ORACLES if (terms := decomposed(oracle))]
    sums += [names_of(str(recipe.get("algorithm", "fedavg"))) for recipe in RECIPES.values()]
    sums += [names_of(cell) for cell in tabled()]
    found = {(name,): spelled(name) for name in algorithms()}
    for terms in map(reduced, sums):
        text = " + ".join(spelled(name) for name in terms)
        if key(terms) not in map(key, found) and _possible(text):
            found[terms] = text
    return found


def normed() -> nn.Module:
    """A model for the contract with BatchNorm, which a batch of one sample can train: it has two numbers a channel."""
    layers = nn.Linear(FEATURES, 2 * HIDDEN), nn.Unflatten(1, (HIDDEN, 2)), nn.BatchNorm1d(HIDDEN), nn.Tanh()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2 * HIDDEN, CLASSES))


def held(names: Names, subject: Algorithm) -> Report:
    """What the contract finds: an algorithm about norm layers or adapters is held to it on a model that has them."""
    if not set(names) & set(NEEDED):
        return check(subject)
    plain = " + ".join(name if name in NEEDED else spelled(name) for name in names)
    return check(chosen_algorithm(plain), normed if "fedbn" in names else dual)


def reduced(terms: Names) -> Names:
    """A sum without FedAvg, which adds nothing; FedInit in one is relaxed initialization."""
    if len(terms) < 2:
        return terms
    return tuple("relaxed_init" if name == "fedinit" else name for name in terms if name != "fedavg")


def key(terms: Names) -> Names:
    """The same for every order of a sum."""
    return tuple(sorted(reduced(terms)))


def algorithms() -> list[str]:
    """The names in the catalog."""
    return [entry.name for entry in catalog(named.NAMED)]


def names_of(text: str) -> Names:
    """The names of an expression's terms."""
    return tuple(call.name.replace("-", "_") for call in parse(text))


def commands() -> list[list[str]]:
    """The grids of docs/compositions.md, as the words of their commands."""
    return [shlex.split(line) for line in re.findall(r"^apiece grid .*$", COMPOSITIONS.read_text(), re.M)]


def tabled() -> list[str]:
    """The cells of these grids."""
    cells = []
    for words in commands():
        rows, columns = (parse_list(words[words.index(f"--{side}") + 1]) for side in ("rows", "columns"))
        cells += [
            " + ".join(map(str, row if str(column[0]) == "nothing" else (*row, *column)))
            for row in rows
            for column in columns
        ]
    return cells


def decomposed(oracle: str) -> Names:
    """The algorithms whose names an oracle's is made of; nothing where it is not made of any."""
    if oracle in algorithms():
        return (oracle,)
    for name in algorithms():
        rest = decomposed(oracle.removeprefix(f"{name}_")) if oracle.startswith(f"{name}_") else ()
        if rest:
            return (name, *rest)
    return ()


def spelled(name: str) -> str:
    """A named algorithm with less work of its own."""
    given = inspect.signature(getattr(named, name)).parameters.items()
    lowered = [f"{k}={BRIEF[k]}" for k, p in given if type(p.default) is int and p.default > BRIEF.get(k, p.default)]
    arguments = [*([NEEDED[name]] if name in NEEDED else []), *lowered]
    return f"{name}({', '.join(arguments)})" if arguments else name


def reference(name: str) -> str:
    """The publication that the catalog's line ends with, in parentheses there."""
    found = re.findall(r"\(([A-Z][^()]* \d{4})\)", " ".join((inspect.getdoc(getattr(named, name)) or "").split()))
    return found[-1] if found else "–"


def _possible(text: str) -> bool:
    try:
        return bool(assemble(replace(CONFIG, algorithm=text)))
    except UserError:
        return False
