"""FedCOG at a temperature, its set in another order in each pass: fedcog.py with both, which its example has not."""

from __future__ import annotations

from typing import Any

from . import fedcog
from .problem import Fixture, Round, known

EXAMPLE: dict = {**fedcog.EXAMPLE, "samples": 7, "batch": 6, "temperature": 2.5, "shuffle": "each_pass"}
MUTATIONS = {
    "once": "one order for all passes",
    "first_too": "another order than the one drawn first already in the first pass",
    "hot": "no temperature",
    "unscaled": "KL(p_T || q_T) not multiplied by T^2",
    "student_only": "the student's outputs divided by T, not the teacher's",
    "teacher_only": "the teacher's outputs divided by T, not the student's",
}


def run(f: Fixture, mutation: str | None = None, **given: Any) -> list[Round]:
    known(mutation, MUTATIONS)
    wrong = {"once": {"shuffle": "once"}, "hot": {"temperature": 1.0}}
    given = given | wrong.get(mutation or "", {})
    return fedcog.run(f, mutation=mutation, mutations=MUTATIONS, **given)
