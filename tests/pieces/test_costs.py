"""What each paper says that its algorithms send and keep, held against the ledger and the rows of a run."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from oracles import ORACLES
from oracles.problem import fixture
from support import against
from support.costs import AS_THE_CODE, BODY, CLAIMS, DESCRIPTOR, EMBEDDED, HEAD, SIZE, TABLE_9, cost, measured
from support.helpers import clusters, federate, gap, mlp, run
from support.readings import TIGHT
from support.wired import CONFIG, same, sequential

from apiece.config.assemble import assemble
from apiece.data.federation import Federation
from apiece.engine.federated import Federated
from apiece.engine.work import Work
from apiece.experiment.launch import run_config
from apiece.experiment.personalize import serve
from apiece.language import algorithms as named

SOME = [(0, 1, 2), (2, 3), (1, 4), (0, 3, 4), (1, 2), (0, 2, 4)]


# a claim catches a vector that is sent or kept beyond the paper's
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: f"{c.where.partition(':')[0]}-{c.algorithm}-{c.what}")
def test_the_papers_number_or_ours_with_its_reason(claim):
    assert measured(claim) == pytest.approx(claim.paper if claim.ours is None else claim.ours, rel=1e-12)
    assert (claim.ours is None) == (claim.why == "") and claim.ours != claim.paper


def test_where_the_table_counts_what_is_not_kept():
    """FedAdam's moments are the server's, once; FedCM's direction comes anew every round; FedSAM's point is gone."""
    assert cost("fedadam").server == 3 * SIZE and cost("fedadam").client == 0
    assert cost("fedcm").down == 2 * SIZE and cost("fedcm").client == 0
    assert cost("fedcm", "uniform").up == SIZE + 1
    assert cost("fedsam").down == SIZE and cost("fedsam").client == 0
    sizes = {"fedavg": 1, "fedadam": 3, "fedsam": 1, "scaffold": 2, "feddyn": 2, "fedcm": 2, "fedinit": 1}
    assert {name: cost(name).server // SIZE for name in TABLE_9} == sizes


# --- FedDyn: one vector up where one tells both means ---------------------------------------------------------------
FEDDYN = [  # subject, weighting, sizes of the model up
    ("feddyn", "uniform", 1),
    ("feddyn", "samples", 2),  # the models' mean is weighted, h's is not
    ("feddyn(mean=model)", "samples", 1),
    ("feddyn + relaxed_init(beta=0.1)", "uniform", 2),
    (AS_THE_CODE, "uniform", 1),
    ("feddyn + fedals(alpha=3)", "uniform", None),  # as FedALS alone
    ("feddyn + fedavg_p", "uniform", BODY / SIZE),
    ("feddyn + fedavg_p(outer_personal=0.5)", "uniform", 2 * BODY / SIZE),  # a piece moves ends, if not these
    ("fednova + feddyn", "uniform", None),
    ("scaffold + feddyn", "uniform", 3),
    ("feddyn + scaffold", "uniform", 2),  # SCAFFOLD's own comes after
]


@pytest.mark.parametrize("text, weighting, up", FEDDYN, ids=[f"{t}-{w}" for t, w, _ in FEDDYN])
def test_feddyn_says_nothing_twice(text, weighting, up):
    found = cost(text, weighting).up / SIZE
    alone = {"feddyn + fedals(alpha=3)": cost("fedals(alpha=3)").up / SIZE, "fednova + feddyn": 2 + 1 / SIZE}
    assert found == pytest.approx(alone.get(text) if up is None else up, rel=1e-12)


@pytest.mark.parametrize("other", [named.fedavg(), named.fedals(2), named.fedavg_p(), named.scaffold()], ids=str)
def test_feddyn_is_the_same_whether_told_or_derived(other, monkeypatch):
    """Models averaged uniformly: h from the models' mean is h from what clients would report, to the last bit."""
    subject = federate(named.feddyn(0.2) + other, mlp(), weighting="uniform")
    derived = run(subject, clusters(), Work(2, None, 4), SOME, absent={1: {3}})
    assert subject.setup.mean_is_uniform[0]
    told = Federated(replace(subject.setup))
    monkeypatch.setitem(told.setup.__dict__, "mean_is_uniform", (False,) * len(subject.setup.pieces))
    reported = run(told, clusters(), Work(2, None, 4), SOME, absent={1: {3}})
    assert reported.answers[0].traffic.numbers_up > derived.answers[0].traffic.numbers_up
    for one, two in zip(derived.servers, reported.servers, strict=True):
        assert torch.equal(one.params, two.params) and gap(one.memory["FedDyn"].term, two.memory["FedDyn"].term) == 0


@pytest.mark.slow
def test_feddyn_says_one_vector_over_the_wire():
    config = replace(CONFIG, algorithm="feddyn", weighting="uniform")
    result = run_config(config)[0]
    assert same(result, sequential(config))
    answered = sum(info["answered"] for info in result.metrics)
    assert result.metrics[-1]["numbers_up"] == answered * SIZE and answered > 2


# --- FedCM: its direction from the models' mean, where all take as many steps --------------------------------------
FEDCM = [  # subject, weighting, sizes of the model up; K lr is a number more
    ("fedcm", "samples", 2),
    ("fedcm + relaxed_init(beta=0.1)", "uniform", 2),
    ("fedcm + fedper", "uniform", (BODY + 1) / SIZE),
    ("fedcm + fedavg_p(inner_personal=0.5)", "uniform", 2 * BODY / SIZE),  # lr is a vector there
    ("fedcm + fedalt", "uniform", 2 * BODY / SIZE),  # so are the steps
    ("fedcm + fedals(alpha=3)", "uniform", 2 * (HEAD + BODY / 3) / SIZE),  # a client may miss a round of an interval
]


@pytest.mark.parametrize("text, weighting, up", FEDCM, ids=[f"{t}-{w}" for t, w, _ in FEDCM])
def test_fedcm_says_its_difference_where_the_mean_does_not_tell_it(text, weighting, up):
    assert cost(text, weighting).up / SIZE == pytest.approx(up, rel=1e-12)


@pytest.mark.parametrize("alpha", [0.1, 0.3, 1.0])
def test_fedcm_from_the_models_mean_is_the_paper(alpha, monkeypatch):
    """Every client's steps are as many: the oracle, whose clients each divide by their own, and no vector is said."""
    f = fixture(0)
    assert len({f.steps(t, i) for t, cohort in enumerate(f.cohorts) for i in cohort}) == 1
    monkeypatch.setattr(against, "federate", partial(federate, equal_work=True))
    ran, ours = against.follow(named.fedcm(alpha), f)
    assert against.furthest(ours, ORACLES["fedcm"].run(f, alpha)) < TIGHT
    assert {a.traffic.control_up for a in ran.answers} == {len(cohort) for cohort in f.cohorts}


@pytest.mark.parametrize("steps, equal", [("3", True), ("uniform(1,3)", False)])
def test_who_takes_how_many_steps_is_known_of_the_work(steps, equal):
    experiment = assemble(replace(CONFIG, algorithm="fedcm", steps=steps, weighting="uniform"))
    assert experiment.federated.setup.equal_steps is equal
    assert not assemble(replace(CONFIG, epochs=2)).federated.setup.equal_steps


@pytest.mark.slow
def test_fedcm_says_one_number_over_the_wire():
    config = replace(CONFIG, algorithm="fedcm", weighting="uniform", steps="2")
    result = run_config(config)[0]
    assert same(result, sequential(config))
    answered = sum(info["answered"] for info in result.metrics)
    assert result.metrics[-1]["numbers_up"] == answered * (SIZE + 1) and answered > 2


# --- what is read is kept, and nothing else -------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text, kept",
    [
        ("moon(mu=0)", 0),
        ("moon", SIZE),
        ("fedcog(kd_weight=0.0, samples=12, steps=3)", 0),
        ("fedcog(dis=0, samples=12, steps=3)", 0),
        ("fedcog(samples=12, steps=3)", SIZE),
        ("fedals(alpha=3)", 2 * BODY + 1),  # its own body, that which was sent, and the steps since then
        ("fedals(alpha=3) + scaffold", 3 * BODY + 1 + SIZE + BODY),  # the gradients' sum, c_i, and the body's part of c
    ],
)
def test_only_what_a_value_reads_is_kept(text, kept):
    assert cost(text).client == kept


# --- PeFLL: what its hypernetwork costs, and an unseen client -----------------------------------------------------
def test_pefll_never_sends_its_hypernetwork():
    small, large = (cost(f"pefll(embedding=linear, size={size})") for size in "SL")
    assert large.server > 1.2 * small.server and (large.up, large.down) == (small.up, small.down)


def test_pefll_serves_any_number_of_clients_with_one_memory_and_pfedhn_does_not():
    """Twelve clients and thirteen have descriptors of one length, so that of the table alone a row comes."""
    few, more = (cost("pefll", clients=n).server for n in (12, 13))
    assert few == more
    few, more = (cost("pfedhn", clients=n).server for n in (12, 13))
    assert more - few == 2 * 4  # a descriptor of int(1 + 13/4), and its momentum


WAYS = {  # numbers down, up, and whether a gradient is taken, for a client that was never seen
    "pefll(embedding=linear)": (EMBEDDED + SIZE, DESCRIPTOR, False),  # two messages down, one up (Algorithm 1)
    "knn_per": (SIZE, 0, False),  # one pass through the global model (section 4)
    "per_fedavg": (SIZE, 0, True),
    "pfedme(epochs=1)": (SIZE, 0, True),
    "fedrep(epochs=1)": (BODY, 0, True),
}


@pytest.mark.parametrize("text", [*WAYS, "pfedhn"])
def test_what_serving_a_client_never_seen_takes(text):
    result = sequential(replace(CONFIG, algorithm=text))
    there = result.experiment.federation
    served = serve(result, Federation(there.pool, (), [there.train[0]], [there.train[0][:0]], ["new"]))
    if text == "pfedhn":  # several rounds with the server (section 2)
        assert served.up > 2 * SIZE and served.down > 2 * SIZE and served.steps
    else:
        assert (served.down, served.up, served.steps > 0) == WAYS[text]
