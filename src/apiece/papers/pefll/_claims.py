"""How the longer sentences of PeFLL's paper on its Table 1 are judged."""

from __future__ import annotations

from itertools import pairwise, permutations, product

from apiece.papers.pefll._setup import COLUMNS
from apiece.reproduce.table import every

C10, C100 = ([c for c in COLUMNS if c.startswith(f"{data} ")] for data in ("CIFAR-10", "CIFAR-100"))
STEPS = (*pairwise(C10), *pairwise(C100))  # from each number of clients to the next larger one


def within(table, distance, cells):
    """No cell's mean on seen clients lies so far above another's."""
    near = lambda at: table.mean(at[0], "seen") < table.mean(at[1], "seen") + distance  # noqa: E731
    return every(near, permutations(cells, 2))


def others(table, number):
    """The rows beside PeFLL; Local is not among those of Table 1 (b), of clients that did not train."""
    return [row for row in table.rows if row != "PeFLL" and (row != "Local" or number.startswith("seen"))]


def best(*numbers):
    """PeFLL has the highest mean of each number in every column."""
    return lambda table: every(lambda number: table.highest("PeFLL", number, others(table, number)), numbers)


def often_by_far(table):
    """PeFLL lies above each other row by more than chance in more than half of the columns, seen and unseen."""
    where = list(product(("seen", "unseen"), table.columns))
    far = lambda name, c: every(lambda row: table.above(("PeFLL", c), (row, c), name), others(table, name))  # noqa: E731
    return 2 * sum(far(*one) for one in where) > len(where)


def lead(table, number, column):
    """How much PeFLL's mean lies above the best other row's."""
    rest = max(table.mean((row, column), number) for row in others(table, number))
    return table.mean(("PeFLL", column), number) - rest


def leads_more_on_unseen(table):
    """PeFLL leads by more on unseen clients than on seen ones, in every column."""
    return every(lambda c: lead(table, "unseen", c) > lead(table, "seen", c), table.columns)


def near_on_unseen(table):
    """PeFLL on unseen clients is within 2 points of seen ones, but on CIFAR-100 with 100 clients."""
    near = lambda c: table.mean(("PeFLL", c), "unseen") > table.mean(("PeFLL", c), "seen") - 0.02  # noqa: E731
    return every(near, [column for column in table.columns if column != C100[0]])


def stable(table):
    """PeFLL has less than 2 points less with 1000 clients than with 100, on CIFAR-10."""
    return table.mean(("PeFLL", C10[2]), "seen") > table.mean(("PeFLL", C10[0]), "seen") - 0.02


def falls(row, surely=False):
    """A row has less on seen clients from each number of clients to the next, surely: by more than chance."""
    less = lambda t, step: t.mean((row, step[1]), "seen") < t.mean((row, step[0]), "seen")  # noqa: E731
    far = lambda t, step: t.above((row, step[0]), (row, step[1]), "seen")  # noqa: E731
    return lambda table: every(lambda step: (far if surely else less)(table, step), STEPS)


def fall_most_on_cifar100(table):
    """Each method has less on seen clients with 1000 clients than with 100, above all on CIFAR-100."""
    loss = lambda row, c: table.mean((row, c[0]), "seen") - table.mean((row, c[2]), "seen")  # noqa: E731
    return every(lambda row: loss(row, C100) > loss(row, C10) > 0, ("Per-FedAvg", "pFedMe", "FedRep"))
