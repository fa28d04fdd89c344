"""How a table with text and gaps becomes numbers: fitted by scikit-learn, kept as plain numbers and words."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from apiece.data.columns import LEAVE, MOST, ODD, like_free_text, no_numbers
from apiece.errors import UserError
from apiece.system import files

if TYPE_CHECKING:
    from apiece.data.arrays import Dataset
    from apiece.data.split import Split

UNKNOWN = -1.0  # the code of a word that was not among the training samples


@dataclass(frozen=True)
class Part:
    """One column of the table: `width` numbers a row, or text of these categories."""

    name: str
    width: int = 1
    categories: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Preparation:
    """How codes [n, c] become numbers [n, d]; a code is a number, a category's number, NaN for a gap, or UNKNOWN.

        filled = code, or `fill` for a gap: the median of numbers, the most frequent category of text
        x = (filled - mean) / scale                     for numbers; for text too, if `encode` is "ordinal"
        x = [filled = 0, filled = 1, ...]               for text, if `encode` is "onehot"; all are 0 if it is unknown

    `fit` is "pooled", for one preparation of all training samples, or "client": then each client fits fill, mean and
    scale on its own training samples, and only the categories are common.
    """

    parts: tuple[Part, ...]
    encode: str = "onehot"
    fit: str = "pooled"
    fill: tuple[float, ...] = ()
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()

    def _whole(self) -> bool:
        """Whether its fields fit each other, as those of a file that nobody has edited do."""
        for part in self.parts:
            words = part.categories
            if not isinstance(part.name, str) or type(part.width) is not int or part.width < 1:
                return False
            if words is not None and not (
                words and part.width == 1 and len({*words}) == len(words) and all(type(word) is str for word in words)
            ):
                return False
        count = sum(part.width for part in self.parts) if self.fit == "pooled" else 0
        fitted = np.array([self.fill, self.mean, self.scale])
        known = self.encode in ("onehot", "ordinal") and self.fit in ("pooled", "client")
        numbers = fitted.shape == (3, count) and fitted.dtype.kind in "iuf"
        return bool(self.parts) and known and numbers and bool(np.isfinite(fitted).all() and (fitted[2] > 0).all())

    @property
    def text(self) -> np.ndarray:
        """Which codes are of text: a mask [c]."""
        return np.repeat([part.categories is not None for part in self.parts], [part.width for part in self.parts])

    def fitted(self, codes: np.ndarray) -> Preparation:
        """The preparation that is fitted on these training codes."""
        from sklearn.impute import SimpleImputer
        from sklearn.preprocessing import StandardScaler

        codes, text = np.where(self.text & (codes == UNKNOWN), np.nan, codes), self.text
        usual, middle = (
            np.asarray(SimpleImputer(strategy=strategy, keep_empty_features=True).fit(codes).statistics_)
            for strategy in ("most_frequent", "median")
        )
        fill = np.where(text, usual, middle)
        scaler: Any = StandardScaler().fit(np.where(np.isnan(codes), fill, codes))
        plain = text & (self.encode == "onehot")
        mean, scale = np.where(plain, 0.0, scaler.mean_), np.where(plain, 1.0, scaler.scale_)
        return replace(self, fill=tuple(fill.tolist()), mean=tuple(mean.tolist()), scale=tuple(scale.tolist()))

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        """Samples as a model takes them, float32 [n, d]."""
        filled = np.where(np.isnan(codes), self.fill, codes)
        scaled, blocks, first = (filled - self.mean) / self.scale, [], 0
        for part in self.parts:
            own = slice(first, first + part.width)
            onehot = part.categories is not None and self.encode == "onehot"
            blocks.append(filled[:, own] == np.arange(len(part.categories or ())) if onehot else scaled[:, own])
            first = own.stop
        return np.concatenate([block.astype(np.float32) for block in blocks], axis=1)

    def save(self, path: Path) -> None:
        """Write it as JSON, in which every number is read back as it was."""
        files.atomic_write(path, json.dumps(asdict(self), indent=1).encode())

    @classmethod
    def load(cls, path: Path) -> Preparation:
        """Read what `save` wrote; raises UserError for a file that holds something else."""
        try:
            table: dict[str, Any] = json.loads(path.read_bytes())
            parts = [p | {"categories": p["categories"] and tuple(p["categories"])} for p in table.pop("parts")]
            plain: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in table.items()
            }
            made = cls(parts=tuple(Part(**part) for part in parts), **plain)
            if not made._whole():
                raise ValueError("a number or a word that no preparation has")
            return made
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise UserError(
                f"{path} is damaged: put it back from a copy, or remove it, and it is fitted again on the run's data."
            ) from None


def refuse_many(where: str, parts: list[Part], rows: int, asked: str | None) -> None:
    """Raise UserError for columns of text that would become too many columns, or that look like free text; `asked` is
    the preparation that the run itself asks for.
    """
    for part in parts:
        if len(part.categories or ()) > MOST and asked != "ordinal":
            raise UserError(
                f"{where}, column {part.name!r}: it has {len(part.categories or ()):,} different texts, which would "
                f"become as many columns: number them by prepare=ordinal, or {LEAVE}."
            )
    free = [part for part in parts if asked is None and like_free_text(len(part.categories or ()), rows)]
    for part in free:
        odd, words = no_numbers(part.categories or ()), part.categories or ()
        if len(odd) <= ODD * len(words):
            few = ", ".join(map(repr, odd[:3])) or "that of a test row"
            raise UserError(
                f"{where}, column {part.name!r}: it is read as text, since not all its values are numbers: mend "
                f"{few}, or leave such cells empty."
            )
    if free:
        first, *others = free
        count, also = len(first.categories or ()), ", ".join(repr(part.name) for part in others)
        raise UserError(
            f"{where}, column {first.name!r}: it has {count:,} different texts in {rows:,} training rows, as names, "
            f"dates and free text have{f' (so have {also})' if others else ''}: make numbers of it, say "
            f"prepare=onehot, or {LEAVE}."
        )


def told(where: str, made: Preparation, gaps: int) -> str:
    """One sentence on what a preparation does."""
    text = {part.name: part.categories for part in made.parts if part.categories is not None}
    numbers = sum(part.width for part in made.parts if part.categories is None)
    became = f"{sum(map(len, text.values()))} (onehot)" if made.encode == "onehot" else "numbers (ordinal)"
    done = [f"{_several(len(text), 'column')} of text ({', '.join(text)}) became {became}"] if text else []
    numbers += len(text) if made.encode == "ordinal" else 0
    done += [f"{_several(gaps, 'gap')} filled (numbers: the median, text: the most frequent)"] if gaps else []
    done += [f"{_several(numbers, 'column')} standardized"] if numbers else []
    pooled = "all of their training samples, so that clients share these statistics (fit=client: each fits its own)"
    own = "each client's own training samples; the categories are common"
    return f"{where}: {', '.join(done)}; fitted on {pooled if made.fit == 'pooled' else own}."


def _several(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def by_client(dataset: Dataset, split: Split) -> tuple[Dataset, Split]:
    """The data set with each client's samples prepared as fitted on its own training samples, and the split that
    numbers them; unchanged if nothing is left to each client. Test samples that no client has are left out.
    """
    made = dataset.preparation
    if made is None or made.fit == "pooled":
        return dataset, split
    own = [made.fitted(dataset.x_train[rows]) for rows in split.train]
    train, held = np.concatenate(split.train), np.concatenate(split.test)
    x_train, x_test = (
        np.concatenate([fit(x[rows]) for fit, rows in zip(own, parts, strict=True)])
        for x, parts in ((dataset.x_train, split.train), (dataset.x_test, split.test))
    )
    rest = {
        name: array[train if name.endswith("train") else held]
        for name in ("y_train", "y_test", "targets_train", "targets_test")
        if (array := getattr(dataset, name)) is not None
    }
    numbered = {"train": consecutive(split.train), "test": consecutive(split.test)}
    return replace(dataset, x_train=x_train, x_test=x_test, **rest), replace(split, **numbered)


def consecutive(parts: list[np.ndarray]) -> list[np.ndarray]:
    """The rows of each client once all clients' rows lie one after the other."""
    ends = np.cumsum([len(rows) for rows in parts])
    return [np.arange(end - len(rows), end) for end, rows in zip(ends, parts, strict=True)]
