"""How the command line reads flags, and shows the settings in groups."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Annotated, Any, get_type_hints

from tyro.conf import OmitArgPrefixes, arg
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from apiece.config.settings import GROUPS, Config, about, shown
from apiece.config.tables import count_or_share

KINDS = {int: "a whole number", float: "a number"}


def number(word: str, kind: type) -> Any:
    """The word as text or as a number; ValueError, which the command line says, if it is none.

    >>> number("2", int), number("2", float), number("2", str)
    (2, 2.0, '2')
    """
    try:
        return kind(word)
    except ValueError:
        raise ValueError(f"{shown(word)} is not {KINDS[kind]}") from None


def registry() -> ConstructorRegistry:
    """Its rules: numbers, and none where that is allowed; seeds with commas between them; a count or a share."""
    rules = ConstructorRegistry()

    @rules.primitive_rule
    def seeds(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
        if kind.type != tuple[int, ...]:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT,INT,...",
            instance_from_str=lambda words: tuple(number(word, int) for word in words[0].split(",")),
            is_instance=lambda value: isinstance(value, tuple),
            str_from_instance=lambda value: [",".join(map(str, value))],
        )

    @rules.primitive_rule
    def count(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
        if kind.type != int | float:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT|SHARE|PERCENT%",
            instance_from_str=lambda words: count_or_share(words[0], "cohort"),
            is_instance=lambda value: isinstance(value, (int, float)),
            str_from_instance=lambda value: [str(value)],
        )

    @rules.primitive_rule
    def plain(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
        own = next((own for own in (int, float, str) if kind.type in (own, own | None)), None)
        if own is None:
            return None
        able, kinds = kind.type != own, (own, int) if own is float else own
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar=own.__name__.upper(),
            instance_from_str=lambda words: None if able and words[0].lower() == "none" else number(words[0], own),
            is_instance=lambda value: (able and value is None) or isinstance(value, kinds),
            str_from_instance=lambda value: [str(value)],
        )

    @rules.struct_rule
    def groups(kind: StructTypeInfo) -> StructConstructorSpec | None:
        """The settings, group by group."""
        if kind.type is not Config:
            return None

        def made(**parts: Any) -> Config:
            return Config(**{name: value for part in parts.values() for name, value in vars(part).items()})

        kinds, said, parts = get_type_hints(Config), about(), []
        for title, names in GROUPS.items():
            flags = [(n, Annotated[kinds[n], arg(help=said[n])], getattr(kind.default, n)) for n in names.split()]
            part = make_dataclass(title, flags)
            parts.append(StructFieldSpec(title, OmitArgPrefixes[part], part(), ""))
        return StructConstructorSpec(made, tuple(parts))

    return rules
