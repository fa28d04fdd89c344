"""The command that holds an algorithm to the laws that all algorithms keep: `apiece check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg


@dataclass(frozen=True)
class Check:
    """Check that an algorithm keeps the laws that all algorithms keep, on a problem of seven unlike clients."""

    algorithm: Positional[Annotated[str, arg(metavar="ALGORITHM")]]
    """An expression, as `run` takes it."""
    plugin: tuple[str, ...] = ()
    """Python files of your own whose public functions are algorithms too (docs/adding-a-piece.md)."""

    def __call__(self) -> None:
        from apiece.algebra.slots import filled, uncalled
        from apiece.config.assemble import chosen_algorithm
        from apiece.contract import check
        from apiece.errors import UserError
        from apiece.language import plugins

        subject = chosen_algorithm(self.algorithm, self.plugin)
        try:
            found = check(subject)
        except AssertionError as error:
            fault = plugins.at_fault(error.__cause__) if isinstance(error.__cause__, Exception) else None
            why = f"on the contract's problem, {fault}" if fault else str(error)
            raise UserError(f"{self.algorithm} cannot be relied on: {why}") from error
        print(f"{found.name} keeps the laws.")
        for piece in subject.pieces:
            own = type(piece).__name__
            print(f"- {own} fills: {', '.join(filled(piece)) or 'no slot'}.")
            if methods := uncalled(piece):
                print(f"- No slots of {own}, so called only where its slots call them: {', '.join(methods)}.")
        print("- One after the other, in threads and after every resumption: the same bits.")
        print(f"- Vectorized: within {found.vectorized:.0e}; clients in another order: within {found.permuted:.0e}.")
        for neutral in found.neutral:
            print(f"- Neutral value: {neutral}.")
        if found.changes:
            print("- On this problem it changes the models, or the losses of clients, that federated averaging has.")
        else:
            print("- On this problem it changes nothing: its models and its clients' losses are federated averaging's.")
