"""Loops in a recording: three steps of each are recorded, and the second, repeated, takes the place of all but one.

The number of such a step is a tensor. A step that asks for its value, for example to decide by it, is not recorded so.
What the steps after the third compute is therefore known from the second and the third: each of their inputs is the
same in both, or the second hands on what the third takes. Else all steps are recorded, each with its number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_leaves

from apiece.engine.stepping import Batched, Step
from apiece.lifts.recorded import layout
from apiece.system.numbered import Number, alias

PART = "apiece.part"  # the key of an operation's part of the recording: 0 is before all steps
RECORDED = 3  # steps of a longer loop: the first is its own, and the others are compared
MOST = 100_000  # operations of a recording: each takes some 20 kilobytes
SMALL = 64  # numbers of a constant that are compared; larger constants are the same where they are one tensor


class Unlike(Exception):
    """A step of a loop does not follow from the one before as that does from the one before it."""


class Loop(NamedTuple):
    """A loop of a recording."""

    parts: range  # of its recorded steps
    times: int  # how many steps it has


@dataclass(frozen=True)
class Cut(Batched):
    """Steps that cut a recording before each of them and after the last; of a loop within a step, none does.

    Where they are `numbered`, all are recorded, each with its number; else as few as suffice.
    """

    numbered: bool = field(default=False, compare=False)
    loops: list[Loop] = field(default_factory=list[Loop], compare=False)
    _open: list[bool] = field(default_factory=list[bool], compare=False)

    def loop(self, step: Step, first: Any, count: int | Tensor) -> Any:
        if self._open:
            return super().loop(step, first, count)
        self._open.append(True)
        here, times = first, self.longest(count)
        if self.numbered:
            taken = [self.takes(k, count) for k in range(times)]
            before = _cut()  # what is made for all steps is in no step, and these differ in inputs alone
            begun = len(_recording().nodes)
            for k in range(times):
                here = step(here, k, taken[k])
                _cut()
                if (len(_recording().nodes) - begun) * times > MOST * (k + 1):
                    raise Unlike(f"{times} steps that ask for their number are too long a recording")
        else:
            k = torch.zeros((), dtype=torch.int64, device=tree_leaves(first)[0].device)
            before = _cut()
            for place in range(min(times, RECORDED)):
                here, k = step(here, Number(place, k), self.takes(k, count)), k + 1
                _cut()
        self._open.clear()
        self.loops.append(Loop(range(before + 1, _cut() + 1), times))
        return here


def _recording() -> fx.Graph:
    mode = get_proxy_mode()
    assert mode is not None, "only what is recorded can be cut"
    return mode.tracer.graph


def _cut() -> int:
    """Make one part of all that was recorded since the last cut: the number of the last part."""
    new, last = list[fx.Node](), -1
    for node in reversed(_recording().nodes):
        if PART in node.meta:
            last = node.meta[PART]
            break
        new.append(node)
    for node in new:
        node.meta = {PART: last + 1}  # what else torch notes of each of thousands of operations are gigabytes
    return last + bool(new)


class Repeated(torch.nn.Module):
    """A step that is taken for each of the numbers `steps`: `handed` says which of its outputs is which input of the
    next, and of the inputs `listed`, which are lists, the step of number k takes the k-th entry.

    The first call takes two steps at most and keeps its inputs in `shown`, for compiling; it raises Unlike where what a
    step hands on has not the layout of what it was given.
    """

    def __init__(self, step: fx.GraphModule, steps: range, handed: dict[int, int], listed: Collection[int]):
        super().__init__()
        self.recorded, self.steps, self.handed, self.listed = step, steps, handed, listed
        self.run: Callable[..., Sequence[Tensor]] = step.forward
        self.shown: tuple[Tensor, ...] | None = None

    def forward(self, *inputs: Any) -> Sequence[Tensor]:
        given, out, first = list(inputs), (), self.shown is None
        for k in self.steps[:2] if first else self.steps:
            for place in self.listed:
                given[place] = inputs[place][k].contiguous()  # as a row of any number of them
            if self.shown is None:
                self.shown = tuple(given)
            out = self.run(*given)
            for place, which in self.handed.items():
                given[place] = out[which]
        if first and any(layout(given[place]) != layout(inputs[place]) for place in self.handed):
            raise Unlike("a step's state has another layout than the one before")
        if first and any(len(inputs[place]) < self.steps.stop for place in self.listed):
            raise Unlike("there are fewer rows than steps")
        return out


def folded(recording: fx.GraphModule, loops: Sequence[Loop]) -> list[Repeated]:
    """Put one module in the place of each recorded step, or of the second and all after it; raises Unlike."""
    made, of = list[Repeated](), defaultdict[int | None, list[fx.Node]](list)
    for node in recording.graph.nodes:
        of[node.meta.get(PART)].append(node)
    for loop in loops:
        steps = [of[part] for part in loop.parts]
        whole = loop.times == len(steps)
        made += [_alone(recording, step, k) for k, step in enumerate(steps if whole else steps[:1])]
        made += [] if whole else [_rest(recording, steps[1], steps[2], loop.times)]
    for node in reversed(recording.graph.nodes):
        if node.target is getitem and not node.users:  # rows of single steps that a module takes by their number
            recording.graph.erase_node(node)
    recording.graph.lint()
    recording.recompile()
    return made


def _alone(recording: fx.GraphModule, step: list[fx.Node], number: int) -> Repeated:
    """One step in its own place."""
    seen, inputs = _seen(step), _inputs(step)
    rows = [(place, _row(x)) for place, x in enumerate(inputs)]
    listed = {place: row.of for place, row in rows if row is not None and row.number == number}
    repeated = Repeated(_extracted(recording, step, inputs, seen), range(number, number + 1), {}, listed)
    given = [listed.get(place, x) for place, x in enumerate(inputs)]
    return _put(recording, repeated, given, step, {node: place for place, node in enumerate(seen)})


def _rest(recording: fx.GraphModule, second: list[fx.Node], third: list[fx.Node], times: int) -> Repeated:
    """The second step, in the place of the second and of all that follow, the third among them."""
    twins, inputs, both = _twins(recording, second, third), _inputs(second), second + third
    if not set(_seen(both)) <= set(third):
        raise Unlike("what follows a loop looks at its second step")
    listed = {place: twins.lists[x] for place, x in enumerate(inputs) if x in twins.lists}
    handed = {place: twins.next[x] for place, x in enumerate(inputs) if x in twins.next and twins.next[x] is not x}
    seen = {node: twins.earlier[node] for node in _seen(third)}
    outputs = list(dict.fromkeys([*handed.values(), *seen.values()]))
    step = _extracted(recording, second, inputs, outputs)
    taken = {place: outputs.index(node) for place, node in handed.items()}
    repeated = Repeated(step, range(1, times), taken, listed)
    given = [listed.get(place, x) for place, x in enumerate(inputs)]
    return _put(recording, repeated, given, both, {node: outputs.index(other) for node, other in seen.items()})


def _inputs(step: list[fx.Node]) -> list[fx.Node]:
    """What a step takes from before it."""
    mine = set(step)
    return list(dict.fromkeys(x for node in step for x in node.all_input_nodes if x not in mine))


def _seen(step: list[fx.Node]) -> list[fx.Node]:
    """Which of a step's nodes are used after it."""
    mine = set(step)
    return [node for node in step if any(user not in mine for user in node.users)]


def _put(
    recording: fx.GraphModule,
    repeated: Repeated,
    inputs: list[fx.Node],
    out: list[fx.Node],
    outputs: dict[fx.Node, int],
) -> Repeated:
    """Put a module in the place of the nodes `out`, of which `outputs` says which of its outputs each is."""
    name = f"step_{out[0].meta[PART]}"
    recording.add_module(name, repeated)
    with recording.graph.inserting_after(out[-1]):
        call = recording.graph.call_module(name, tuple(inputs))
    for node, place in outputs.items():
        with recording.graph.inserting_after(call):
            node.replace_all_uses_with(recording.graph.call_function(getitem, (call, place)))
    for node in reversed(out):
        recording.graph.erase_node(node)
    return repeated


def _extracted(
    recording: fx.GraphModule, step: list[fx.Node], inputs: list[fx.Node], outputs: list[fx.Node]
) -> fx.GraphModule:
    """These nodes as a graph of its own."""
    graph = fx.Graph()
    own = {node: graph.placeholder(f"given_{place}") for place, node in enumerate(inputs)}
    for node in step:
        own[node] = graph.node_copy(node, own.__getitem__)
    graph.output(tuple(own[node] for node in outputs))
    return fx.GraphModule(recording, graph)


class _Twins(NamedTuple):
    """What is the same in two steps."""

    earlier: dict[fx.Node, fx.Node]  # a node of the later step -> that of the earlier one
    next: dict[fx.Node, fx.Node]  # an input of the earlier step -> that of the later one
    lists: dict[fx.Node, fx.Node]  # an input of the earlier step, a row of values for each -> the rows


def _twins(recording: fx.GraphModule, second: list[fx.Node], third: list[fx.Node]) -> _Twins:
    """The pairs of nodes of the two steps; raises Unlike."""
    if len(second) != len(third):
        raise Unlike("two steps differ in the number of operations")
    twins, mine = _Twins({}, {}, {}), set(second)
    for one, two in zip(second, third, strict=True):
        if said(recording, one, _order(one)) != said(recording, two, _order(two)):
            raise Unlike(f"two steps differ in an operation: {one.target} and {two.target}")
        for x, y in zip(one.all_input_nodes, two.all_input_nodes, strict=True):
            if y in twins.earlier:
                alike = twins.earlier[y] is x
            elif one.target is alias and (rows := _rows(x, y)) is not None:
                alike = twins.lists.setdefault(x, rows) is rows
            else:
                alike = x not in mine and (y is x or y in mine) and twins.next.setdefault(x, y) is y
            if not alike:
                raise Unlike(f"two steps differ in what {one.target} takes")
        twins.earlier[two] = one
    if twins.lists.keys() & twins.next.keys():
        raise Unlike("one input is a row of the step's number and something else")
    return twins


class _Row(NamedTuple):
    """A row, of which rows, and its number."""

    of: fx.Node
    number: int


def _row(x: fx.Node) -> _Row | None:
    """Which row of a tensor that was taken apart this is, if it is one."""
    of = x.args[0] if x.target is getitem else None
    is_row = isinstance(of, fx.Node) and of.target is torch.ops.aten.unbind.int
    return _Row(*x.args) if is_row else None  # type: ignore[arg-type]


def _rows(x: fx.Node, y: fx.Node) -> fx.Node | None:
    """The rows of which the second step takes the second, x, and the third the third, y: each by its own number."""
    one, two = _row(x), _row(y)
    return one.of if one and two and one.of is two.of and (one.number, two.number) == (1, 2) else None


def _order(node: fx.Node) -> dict[fx.Node, int]:
    return {x: place for place, x in enumerate(node.all_input_nodes)}


def said(module: fx.GraphModule, node: fx.Node, numbers: dict[fx.Node, int]) -> str:
    """An operation and what it takes, as a text in which nodes have numbers, and constants their values."""
    plain = map_aggregate((node.args, node.kwargs), lambda a: f"%{numbers[a]}" if isinstance(a, fx.Node) else repr(a))
    target = "" if node.op == "placeholder" else _held(module, node) if node.op == "get_attr" else node.target
    return f"{node.op} {target} {plain}"


def _held(module: fx.GraphModule, node: fx.Node) -> Any:
    """A constant's layout and values, or which of all tensors it is where it is large."""
    constant = getattr(module, str(node.target))
    return layout(constant), constant.tolist() if constant.numel() <= SMALL else id(constant)


def text(graph: fx.GraphModule) -> str:
    """What a graph computes, as a text in which operations have numbers instead of names."""
    numbers = {node: place for place, node in enumerate(graph.graph.nodes)}
    return "\n".join(said(graph, node, numbers) for node in graph.graph.nodes)
