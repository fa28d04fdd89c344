"""The grammar of expressions such as `scaffold + relaxed_init(0.1)`: text to terms and back.

    list       = expression {"," expression}
    expression = term {"+" term}
    term       = name ["(" [argument {"," argument} [","]] ")"]
    argument   = [name "="] value
    value      = number | "text" | 'text' | true | false | none | name | term | "[" [value {"," value} [","]] "]"

A bare name is text. Names may contain dots and dashes; a quote inside quoted text is doubled; `inf` is a number.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from apiece.errors import UserError

DEEPEST = 20
LONGEST = 300  # digits of a number: as many as fit a float
CONSTANTS = {"true": True, "True": True, "false": False, "False": False, "none": None, "None": None}
NAME = r"[A-Za-z_][\w.-]*"
TOKEN = re.compile(
    rf"""\s*(?:
    (?P<number> -?(?: (?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][+-]?\d+)? | inf(?![\w.-]) ))
  | (?P<name> {NAME})
  | (?P<text> "(?:[^"]|"")*" | '(?:[^']|'')*')
  | (?P<mark> \.\.(?=[\s\d.-]) | [()\[\],=+])
  | (?P<end> \Z)
  | (?P<other> \S))""",
    re.VERBOSE | re.ASCII,
)
KINDS = {"end": "the end", "name": "a name", "number": "a number", "text": "text", "[": "a list"}
EXAMPLE, RANGE = "'name + name(0.1, key=2)'", "'lr=0.01..1, momentum=choice(0, 0.9)'"
Tokens = deque["Token"]


class Token(NamedTuple):
    kind: str  # number, name, text, end, or the mark itself
    text: str
    at: int


@dataclass(frozen=True)
class Call:
    """One term; its text, `str(call)`, parses to an equal term."""

    name: str
    arguments: tuple[Any, ...] = ()
    keywords: tuple[tuple[str, Any], ...] = ()
    at: int = field(default=0, compare=False, repr=False)  # its place in the text

    def __str__(self) -> str:
        inside = [written(value) for value in self.arguments]
        inside += [f"{key}={written(value)}" for key, value in self.keywords]
        return f"{self.name}({', '.join(inside)})" if inside else self.name


def parse(text: str) -> tuple[Call, ...]:
    """The terms of an expression, in order; UserError names the character at which the text is wrong.

    >>> parse("fedals(period=10) + relaxed_init(0.1)")[0]
    Call(name='fedals', arguments=(), keywords=(('period', 10),))
    """
    tokens = deque(_tokens(text))
    terms = _terms(tokens)
    _take(tokens, "end", "+")
    return terms


def parse_list(text: str) -> tuple[tuple[Call, ...], ...]:
    """The expressions of a list, in order; commas inside a term belong to the term.

    >>> [" + ".join(map(str, terms)) for terms in parse_list("fedavg, scaffold + fedals(5, cohort=held)")]
    ['fedavg', 'scaffold + fedals(5, cohort=held)']
    """
    tokens = deque(_tokens(text))
    expressions = _separated(tokens, ",", _terms)
    _take(tokens, "end", "+", ",")
    return expressions


def parse_ranges(text: str) -> dict[str, Call]:
    """The ranges of a list `name=range, ...`, by name; `a..b` is short for `range(a, b)`.

    >>> {name: str(call) for name, call in parse_ranges("lr=loguniform(1e-3, 1), beta=0..0.2").items()}
    {'lr': 'loguniform(0.001, 1)', 'beta': 'range(0, 0.2)'}
    """
    tokens, found = deque(_tokens(text)), dict[str, Call]()
    for name, call in _separated(tokens, ",", _range):
        if name.text in found:
            raise error(name.at, f"{name.text!r} is given twice; keep one")
        found[name.text] = call
    _take(tokens, "end", ",", example=RANGE)
    return found


def _range(tokens: Tokens) -> tuple[Token, Call]:
    name = _take(tokens, "name", example=RANGE)
    _take(tokens, "=", example=RANGE)
    first = _take(tokens, "number", "name", example=RANGE)
    if first.kind == "name":
        return name, _call(first, tokens, 0)
    _take(tokens, "..", example=RANGE)
    return name, Call("range", (_number(first), _number(_take(tokens, "number", example=RANGE))), at=first.at)


def _terms(tokens: Tokens) -> tuple[Call, ...]:
    return _separated(tokens, "+", lambda tokens: _call(_take(tokens, "name"), tokens, 0))


def _separated(tokens: Tokens, mark: str, read: Callable[[Tokens], Any]) -> tuple[Any, ...]:
    found = [read(tokens)]
    while tokens[0].kind == mark:
        tokens.popleft()
        found.append(read(tokens))
    return tuple(found)


def _tokens(text: str) -> Iterator[Token]:
    for match in TOKEN.finditer(text):
        kind = str(match.lastgroup)
        found, at = match[kind], match.start(kind)
        if kind == "other":
            raise error(at, f"cannot read {found!r} here; put quotes around text that is not a plain name")
        yield Token(found if kind == "mark" else kind, found, at)


def _take(tokens: Tokens, *kinds: str, example: str = EXAMPLE) -> Token:
    token = tokens.popleft()
    if token.kind not in kinds:
        wanted = " or ".join(KINDS.get(kind, repr(kind)) for kind in kinds)
        found = "the end" if token.kind == "end" else repr(token.text)
        raise error(token.at, f"expected {wanted}, found {found}; write it as in {example}")
    return token


def _call(name: Token, tokens: Tokens, depth: int) -> Call:
    if tokens[0].kind != "(":
        return Call(name.text, at=name.at)
    tokens.popleft()
    arguments, keywords = [], {}
    for _ in _items(tokens, ")"):
        first = tokens[0]
        if first.kind == "name" and tokens[1].kind == "=":
            tokens.popleft()
            tokens.popleft()
            if first.text.replace("-", "_") in (key.replace("-", "_") for key in keywords):
                raise error(first.at, f"argument {first.text!r} is given twice; keep one")
            keywords[first.text] = _value(tokens, depth + 1)
        elif keywords:
            raise error(first.at, f"{first.text!r} follows a named argument; name it or move it to the front")
        else:
            arguments.append(_value(tokens, depth + 1))
    return Call(name.text, tuple(arguments), tuple(keywords.items()), name.at)


def _items(tokens: Tokens, close: str) -> Iterator[None]:
    """Yields once before each item of a list, and takes the commas and the closing mark."""
    while tokens[0].kind != close:
        yield
        if tokens[0].kind != close:
            _take(tokens, ",", close)
    tokens.popleft()


def _value(tokens: Tokens, depth: int) -> Any:
    token = _take(tokens, "number", "text", "name", "[")
    if depth > DEEPEST:
        raise error(token.at, f"more than {DEEPEST} brackets deep; write it flatter")
    if token.kind == "number":
        return _number(token)
    if token.kind == "text":
        quote = token.text[0]
        return token.text[1:-1].replace(quote * 2, quote)
    if token.kind == "[":
        return tuple(_value(tokens, depth + 1) for _ in _items(tokens, "]"))
    if tokens[0].kind == "(":
        return _call(token, tokens, depth)
    return CONSTANTS.get(token.text, token.text)


def _number(token: Token) -> int | float:
    if len(token.text) > LONGEST:
        raise error(token.at, f"a number of {len(token.text)} digits; write at most {LONGEST}")
    if token.text.lstrip("-").isdigit():
        return int(token.text)
    number = float(token.text)
    if math.isinf(number) and "inf" not in token.text:
        raise error(token.at, f"{token.text} is too large for a number; write a smaller one, or inf")
    return number


def written(value: Any) -> str:
    """The text that parses, as an argument, to this value."""
    if isinstance(value, Call):
        return str(value) if value.arguments or value.keywords else f"{value.name}()"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(written(item) for item in value)}]"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if not isinstance(value, str):
        return getattr(value, "__name__", type(value).__name__.lower())
    if re.fullmatch(NAME, value, re.ASCII) and value not in CONSTANTS and value != "inf":
        return value
    return '"' + value.replace('"', '""') + '"'


def error(at: int, problem: str) -> UserError:
    """The UserError for a problem at this place in an expression's text; the first place is not named."""
    return UserError(f"at character {at + 1}: {problem}" if at else problem)
