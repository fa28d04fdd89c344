"""What FedExP says of a round, and which of its iterates is measured."""

from __future__ import annotations

import json

import pytest
import torch
from support.helpers import KEEPS_ALL, FullBatch, clusters, federate, mlp, run
from support.outer import cli, config, draw_no_page_of_one_run

from apiece.algebra.composition import algorithm
from apiece.config.assemble import assemble, chosen_algorithm
from apiece.contract import check
from apiece.engine.clients import Clients
from apiece.errors import UserError
from apiece.experiment.run import execute
from apiece.language import algorithms as named
from apiece.pieces.fedexp import FedExP


def test_fedexp_logs_its_step_size():
    """By hand, from what every client kept; and the log is never read back."""
    federated = federate(named.fedexp(), mlp(), watch=KEEPS_ALL, weighting="samples")
    kept: list[torch.Tensor] = []

    def look(t: int, clients: Clients) -> None:
        kept.append(torch.stack([clients.row(c)[0]["model"] for c in range(5)]))

    ran = run(federated, clusters(), FullBatch(3), [(0, 1, 2), (1, 3, 4), range(5)], after=look)
    sizes = torch.tensor([12.0, 5, 26, 3, 8], dtype=torch.float64)
    for t, (answer, ends) in enumerate(zip(ran.answers, kept, strict=True)):
        before, after = ran.servers[t], ran.servers[t + 1]
        asked = torch.tensor(answer.answered)
        p = sizes[asked] / sizes[asked].sum()
        updates = before.params - ends[asked]
        mean = p @ updates
        eta = max(1.0, float(p @ updates.square().sum(1) / (2 * (mean @ mean + 1e-3))))
        assert list(answer.logged) == ["FedExP.step_size"]
        assert float(answer.logged["FedExP.step_size"]) == pytest.approx(eta, rel=1e-10)
        assert (after.params - (before.params - eta * mean)).abs().max() < 1e-12


def test_what_is_evaluated_is_not_trained():
    """The mean of the last two vectors is measured and saved; the run is bitwise the one without it."""
    plain, mean = (
        execute(assemble(config(algorithm=f"fedexp(evaluate={value}) + fedavgm"))) for value in ("last", "average")
    )
    assert torch.equal(plain.server.params, mean.server.params)
    before = execute(assemble(config(algorithm="fedexp + fedavgm", rounds=2))).server.params
    space = mean.experiment.federated.setup.task.space
    wanted = space.state_dict((plain.server.params + before) / 2, mean.server.buffers)
    assert all(torch.equal(value, wanted[name]) for name, value in mean.model().items())
    assert mean.metrics[-1]["global_loss"] != plain.metrics[-1]["global_loss"]
    assert [m["FedExP.step_size"] for m in mean.metrics] == [m["FedExP.step_size"] for m in plain.metrics]
    assert all(m["FedExP.step_size"] >= 1 for m in mean.metrics)


@pytest.mark.parametrize("said", [torch.ones(2), "much", None])
def test_a_log_takes_single_numbers(said):
    class Talking(FedExP):
        def log(self, memory, g, report, share):
            return {"said": said}

    with pytest.raises(UserError, match="Talking.log returned {'said': .*}: it must return single numbers"):
        run(federate(algorithm(Talking(), name="talking"), mlp()), clusters(), FullBatch(1), [(0, 1)])


@pytest.mark.parametrize("text", ["fedexp(evaluate=average)", "fedexp(evaluate=average) + fedals(alpha=2) + fedavgm"])
def test_the_average_keeps_the_contract(text):
    check(chosen_algorithm(text))


def test_a_log_is_in_the_folder_and_is_the_same_after_a_resume(tmp_path, monkeypatch):
    draw_no_page_of_one_run(monkeypatch)
    experiment = assemble(config(algorithm="fedexp(evaluate=average)", lift="sequential"))
    wanted = [info["FedExP.step_size"] for info in execute(experiment, tmp_path / "run").metrics]
    max((tmp_path / "run" / "checkpoints").glob("round-*.safetensors")).unlink()
    assert cli("resume", tmp_path / "run").code == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["FedExP.step_size"] for line in lines] == wanted and len(wanted) == 3
