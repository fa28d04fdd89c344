"""What each slot must return, and that it changes no vector it is given. Every class of pieces is held to it where it
is defined: what an own piece does by mistake is said in one sentence, instead of failing somewhere in the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from inspect import getattr_static, signature
from traceback import walk_tb
from types import FunctionType
from typing import Any, NoReturn, cast

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from apiece.algebra.draws import Draw
from apiece.algebra.message import Message
from apiece.algebra.trees import alike, described, every_leaf, of_marks, of_tensors, parts_of, versions
from apiece.algebra.view import View
from apiece.errors import UserError

MADE = "a slot makes a new tensor, as theta - x does and theta -= x does not"
RULE = "scratch", "g", "theta", "batch"  # what a rule is called with in every step
VECTORS = "sent", "model", "start", "end", "gradient", "draws", "server", "client", "scratch", "message"  # of a view
SEEN = [View._fields.index(name) for name in VECTORS]  # whether or not the piece may read them
Given = Sequence[Any]  # a slot's arguments without the piece
Held = Callable[[str, Given, Any], Any]  # (who returned it, what it was given, what it returned) -> what is used of it


def hold(kind: type, base: type) -> None:
    """Hold a class to what its slots must take and return; `base` has all slots and fills none.

    Raises UserError where a slot takes other arguments; what it returns is looked at whenever it is called.
    """
    for slot, held in SLOTS.items():
        found, empty = getattr_static(kind, slot), vars(base)[slot]
        if not callable(found) and not isinstance(found, staticmethod | classmethod):
            raise UserError(f"{kind.__name__}.{slot} is {described(found)}, but {slot!r} is a slot: rename it.")
        if isinstance(found, FunctionType) and found is not empty and not hasattr(found, "slot"):
            _refuse_signature(kind, found, empty)
            setattr(kind, slot, _holding(slot, found, held))


def _holding(slot: str, function: FunctionType, held: Held) -> Callable[..., Any]:
    @wraps(function)
    def filled(piece: Any, *given: Any, **named: Any) -> Any:
        who = f"{type(piece).__name__}.{slot}"
        returned = _called(who, (*given, *named.values()), function, piece, *given, **named)
        if named:
            given = signature(function).bind(piece, *given, **named).args[1:]
        return held(who, given, returned)

    cast("Any", filled).slot = slot  # a class that inherits it does not hold it again
    return filled


def _tensors(given: Any) -> Iterator[Tensor]:
    """The tensors of one argument of a slot; of a view, those that are not the client's samples."""
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, View):
        yield from _tensors([given[place] for place in SEEN])
    else:
        for part in parts_of(given) or ():
            yield from _tensors(part)


def _called(who: str, watched: Sequence[Any], function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
    """What the function returns; UserError where it changes a tensor of what is watched in place."""
    tensors = list(_tensors(watched))
    before = versions(tensors)
    returned = function(*given, **named)
    if versions(tensors) != before:
        raise UserError(f"{who} changes a tensor in place that it was given: {MADE}.")
    return returned


def blamed(error: BaseException) -> str:
    """The slot in which an error was raised, such as `Centered.learn`, or whose function raised it; "" if in none."""
    frames = (frame for frame, _ in walk_tb(error.__traceback__) if frame.f_code.co_filename == __file__)
    return next((frame.f_locals["who"] for frame in frames if "who" in frame.f_locals), "")


def _refuse_signature(kind: type, function: FunctionType, empty: FunctionType) -> None:
    called = list(signature(empty).parameters)
    try:
        signature(function).bind(*called)
    except TypeError:
        takes = ", ".join(map(str, signature(function).parameters))
        raise UserError(
            f"{kind.__name__}.{empty.__name__} takes ({takes}), but a round calls it with ({', '.join(called)}): give "
            "it these parameters."
        ) from None


def _refuse(who: str, returned: Any, must: str) -> NoReturn:
    raise UserError(f"{who} returned {described(returned)}: it must return {must}.")


# --- what slots of each kind must return ------------------------------------------------------------------------------
def _model(who: str, given: Given, returned: Any) -> Any:
    """A vector like theta, the last argument."""
    if not alike(returned, given[-1]):
        _refuse(who, returned, f"a model like the theta that it is given, {described(given[-1])}")
    return returned


def _memory(who: str, given: Given, returned: Any) -> Any:
    if not of_tensors(returned):
        _refuse(who, returned, "tensors: one, or a tuple, a NamedTuple, a list or a dict of them, or () for nothing")
    return returned


def _remembered(who: str, given: Given, returned: Any) -> Any:
    """A memory like the one before: that of the client's view, or the first argument."""
    before = given[0].client if len(given) == 1 else given[0]
    if not alike(returned, before):
        _refuse(who, returned, f"a memory like the one before, {described(before)}")
    return returned


def refuse_other_parameters(function: Callable[..., Any], names: tuple[str, ...], who: str) -> None:
    """Raise UserError where a function, `who`, cannot be called with arguments of these names in their order."""
    code = function.__code__ if isinstance(function, FunctionType) else None
    if code and code.co_argcount == len(names) and not code.co_kwonlyargcount:
        return  # told at once, for this is asked for every client
    try:
        takes = signature(function)
    except ValueError:  # what is written in C has none
        return
    try:
        takes.bind(*names)
    except TypeError:
        raise UserError(f"{who} is called with ({', '.join(names)}): give it these parameters, not {takes}.") from None


def _objective(who: str, given: Given, returned: Any) -> Any:
    if returned is given[1]:
        return returned
    if not callable(returned):
        _refuse(who, returned, "a loss, which is a function of (theta, batch)")
    refuse_other_parameters(returned, ("theta", "batch"), f"the loss of {who}")

    def loss(theta: Tensor, batch: Any) -> Tensor:
        value = _called(f"the loss of {who}", [batch], returned, theta, batch)
        if not isinstance(value, Tensor) or value.dim() or not value.is_floating_point():
            _refuse(f"the loss of {who}", value, "a tensor of shape [], computed from theta")
        if theta.requires_grad and not value.requires_grad:
            raise UserError(
                f"the loss of {who} returned a number that does not depend on theta: compute it from theta, without "
                "detach(), item() or no_grad()."
            )
        return value

    return loss


def _correction(who: str, given: Given, returned: Any) -> Any:
    if returned is None:
        return None
    parts = parts_of(returned) or []
    if not isinstance(returned, tuple) or len(parts) != 2 or not callable(parts[1]) or not of_tensors(parts[0]):
        _refuse(
            who,
            returned,
            "(scratch, rule) or None, rule being a function of (scratch, g, theta, batch), and scratch what it carries "
            "from step to step: () or tensors",
        )
    first, rule = parts
    refuse_other_parameters(rule, RULE, f"the rule of {who}")

    def held(scratch: Any, g: Tensor, theta: Tensor, batch: Any) -> Any:
        given = scratch, g, theta, batch
        found = _called(f"the rule of {who}", given, rule, *given)
        if not alike(found, (scratch, g)):
            _refuse(f"the rule of {who}", found, f"(scratch, g), each like its own: {described((scratch, g))}")
        return found

    return first, held


def _report(who: str, given: Given, returned: Any) -> Any:
    if not of_marks(returned):
        _refuse(
            who,
            returned,
            "tensors, each wrapped in Uniform, Weighted, Sum or PerClient, which say what the server makes of it, or "
            "() for nothing",
        )
    return returned


def _message(who: str, given: Given, returned: Any) -> Any:
    if not isinstance(returned, Message):
        _refuse(who, returned, "a Message: message._replace(delta=...) is the one that it is given with another delta")
    for part, one, other in zip(Message._fields, returned, given[1], strict=True):
        if not alike(one, other):
            _refuse(f"the {part} of {who}", one, f"one like that of the message that it is given, {described(other)}")
    return returned


def _learned(who: str, given: Given, returned: Any) -> Any:
    memory, g = given[0], given[1]
    if not alike(returned, (g, memory)):
        _refuse(who, returned, f"(g, memory), each like the one that it is given: {described((g, memory))}")
    return returned


def _figures(who: str, given: Given, returned: Any) -> Any:
    if not isinstance(returned, dict) or not all(isinstance(name, str) for name in cast("dict[Any, Any]", returned)):
        _refuse(who, returned, "a dict with a name for each value, {} for nothing")
    return cast("dict[str, Any]", returned)


def _numbers(who: str, given: Given, returned: Any) -> Any:
    for value in _figures(who, given, returned).values():
        if not (value.dim() == 0 if isinstance(value, Tensor) else isinstance(value, int | float)):
            _refuse(who, returned, "single numbers by name: each a number, or a tensor of shape []")
    return returned


def _plain(form: Sequence[int]) -> list[int]:
    """A shape without its ones: scores [B, 1] may also be [B]."""
    return [size for size in form if size != 1]


def _predictor(who: str, given: Given, returned: Any) -> Any:
    if returned is None:
        return None
    if not callable(returned):
        _refuse(who, returned, "a function x -> scores, or None to predict with the model alone")

    def predict(x: Any) -> Tensor:
        found, count = returned(x), len(tree_leaves(x)[0])
        if not isinstance(found, Tensor) or not found.is_floating_point() or not found.dim() or len(found) != count:
            _refuse(f"the function of {who}", found, f"scores of {count} samples: a tensor like the model's outputs")
        usual = given[0].task.task.form(given[0].end, x, given[0].task.buffers)
        if usual is not None and _plain(found.shape[1:]) != _plain(usual):
            _refuse(f"the function of {who}", found, f"as many scores a sample as the model, {usual.numel()}")
        return found

    return predict


def _draws(who: str, given: Given, returned: Any) -> Any:
    if not isinstance(returned, tuple) or not every_leaf(lambda part: isinstance(part, Draw), returned):
        _refuse(who, returned, 'a tuple of Draw, such as (Draw("noise", (3,)),)')
    return cast("tuple[Draw, ...]", returned)


def _piece(who: str, given: Given, returned: Any) -> Any:
    if who != f"{type(returned).__name__}.complete":
        _refuse(who, returned, "a piece of its own class: self, or dataclasses.replace(self, ...)")
    return returned


def _module(who: str, given: Given, returned: Any) -> Any:
    if not isinstance(returned, nn.Module):
        _refuse(who, returned, "the module that is trained, an nn.Module")
    return returned


def _sentence(who: str, given: Given, returned: Any) -> Any:
    if not isinstance(returned, str):
        _refuse(who, returned, 'a sentence, or "" if nothing speaks against this share')
    return returned


SLOTS: dict[str, Held] = {
    "complete": _piece,
    "doubt": _sentence,
    "prepare": _module,
    "server_memory": _memory,
    "client_memory": _memory,
    "tell": _memory,
    "draws": _draws,
    "start": _model,
    "objective": _objective,
    "correct": _correction,
    "keep": _model,
    "report": _report,
    "upload": _message,
    "remember": _remembered,
    "log": _numbers,
    "learn": _learned,
    "settle": _remembered,
    "evaluate": _model,
    "personal": _model,
    "predict": _predictor,
    "observe": _figures,
}
