"""Which lift `auto` takes, and what a resumed run takes: from what the run is, and never from a clock."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from apiece import Config
from apiece.config.assemble import assemble
from apiece.data.arrays import from_arrays
from apiece.experiment import choice, worth
from apiece.experiment.launch import resume, run_config
from apiece.experiment.worth import compiling
from apiece.lifts.compiled import Compiled
from apiece.lifts.graphs import Graphs
from apiece.lifts.lift import Threaded
from apiece.networks import models
from apiece.networks.attention import attention

QUICK = {"clients": 4, "rounds": 2, "steps": "2", "batch": 8, "split": "iid", "model": "mlp(hidden=[8])"}


@pytest.mark.parametrize(
    "model, shape",
    [("mlp", (8, 8)), ("cnn", (1, 8, 8)), ("lenet", (3, 32, 32)), ("resnet20", (3, 16, 16)),
     ("resnet18_gn", (3, 16, 16))],
)  # fmt: skip
def test_operations_are_those_that_torch_counts_forward(model, shape):
    built, x = getattr(models, model)(shape, 10), torch.zeros(2, *shape)
    with FlopCounterMode(display=False) as theirs, worth.Counter() as ours:
        built(x)
    assert ours.operations == theirs.get_total_flops() > 0


@pytest.mark.parametrize("channels, colored", [(1, 0), (3, 28 * 28 * 3 * 25), (4, 0)])
def test_outputs_of_convolutions_are_counted_and_for_each_kernel_the_operations_on_colored_images(channels, colored):
    built, x = models.lenet((channels, 32, 32), 10), torch.zeros(2, channels, 32, 32)
    with worth.Counter() as counter:
        built(x)
    assert counter.colored == 2 * 2 * colored and counter.outputs == 2 * (16 * 28 * 28 + 32 * 10 * 10)


@pytest.mark.parametrize(
    "model, channels, batch, wide, pays",  # as measured with benchmarks/lengths.py
    [("cnn_fedcog", 3, 50, False, False), ("cnn_fedcog", 3, 50, True, True), ("cnn_fedcog", 3, 10, False, True),
     ("lenet", 3, 32, False, False), ("lenet", 3, 10, False, True), ("cnn", 3, 32, False, False),
     ("cnn", 3, 32, True, True), ("cnn", 3, 10, False, True), ("lenet", 1, 32, False, True), ("cnn", 1, 32, True, True),
     ("cnn", 1, 256, True, False), ("resnet20", 1, 10, True, False)],
)  # fmt: skip
def test_large_batches_and_deep_networks_are_not_compiled_where_that_gains_nothing(
    model, channels, batch, wide, pays, monkeypatch
):
    monkeypatch.setattr(worth, "wide", lambda: wide)
    side, many = 28 if channels == 1 else 32, 4 * 10 * batch
    images = np.random.default_rng(0).integers(0, 256, (many, side, side, channels), dtype=np.uint8)
    data = from_arrays("images", images.squeeze(), np.arange(many) % 2)
    made = assemble(Config(**QUICK | {"model": model, "batch": batch}), dataset=data)
    facts = choice.facts_of(made)
    assert facts is not None
    assert compiling(facts._replace(steps=1e7, together=5)).pays == pays  # of ten clients, in two calls


def test_attention_is_counted():
    heads, mask = torch.zeros(2, 4, 5, 8), torch.ones(2, 1, 5, 5, dtype=torch.bool)
    with worth.Counter() as counter:
        attention(torch.nn.Identity(), heads, heads, heads, mask, 1.0)
    assert counter.operations == 2 * (2 * 2 * 4 * 5 * 5 * 8)


@pytest.mark.parametrize(
    "settings, alike",
    [({}, True), ({"steps": "uniform(1,3)"}, False), ({"split": "dirichlet(0.1)"}, True),
     ({"split": "dirichlet(0.1)", "epochs": 1}, False), ({"batch": 400}, False)],
)  # fmt: skip
def test_the_facts_of_a_run(settings, alike):
    facts = choice.facts_of(assemble(Config(**QUICK | settings)))
    assert facts is not None and facts.alike == alike
    if not settings:  # forward, and as much for the gradients of the inputs and for those of the weights
        assert facts.operations == 3 * 2 * 8 * (64 * 8 + 8 * 10)
        assert facts.steps == 4 * 2 * 2 and facts.layers == 2
        assert (facts.together, facts.calls, facts.workers) == (2, 2, min(2, choice.cores()))


def test_other_precisions_and_models_of_a_program_are_not_compiled():
    made = assemble(Config(**QUICK))
    assert choice.compilable(made)
    assert not choice.compilable(replace(made, config=replace(made.config, precision="float64")))
    assert not choice.compilable(replace(made, config=replace(made.config, model="your own")))


def noted(folder: Path) -> dict:
    return tomllib.loads((folder / "run.toml").read_text())["resolved"]


def test_a_run_that_is_worth_it_is_compiled_and_goes_on_so(tmp_path, monkeypatch, capsys, no_report):
    """With a compiler that leaves graphs as they are; the resumed run is bitwise the one that was not stopped."""
    config = Config(**QUICK, lift="auto", workers=2)
    monkeypatch.setattr(worth, "START", -1e9)
    monkeypatch.setattr("apiece.lifts.compiled._by_torch", lambda graph: graph)
    whole, begun = tmp_path / "whole", tmp_path / "begun"
    run_config(replace(config, rounds=4, out=str(whole)))
    run_config(replace(config, out=str(begun)))
    assert noted(begun)["lift"] == "Compiled(2, 2)" and "compiling should save" in noted(begun)["lift_because"]
    assert capsys.readouterr().err.count("auto compiles the local steps") == 2
    monkeypatch.setattr(worth, "START", 1e9)  # what a longer run would take does not matter
    resume(begun, rounds=4)
    name = "model.safetensors"
    assert (begun / name).read_bytes() == (whole / name).read_bytes()


def test_without_a_compiler_a_new_run_is_not_compiled_and_says_why(tmp_path, monkeypatch, capsys, no_report):
    def missing(graph):
        raise RuntimeError("no g++ here")

    monkeypatch.setattr(worth, "START", -1e9)
    monkeypatch.setattr("apiece.lifts.compiled._by_torch", missing)
    run_config(Config(**QUICK, workers=2, out=str(tmp_path / "run")))
    assert noted(tmp_path / "run")["lift"].startswith("Threaded") and "no g++ here" in capsys.readouterr().err


@pytest.mark.slow
# FedGen's steps differ from the second round on, which is tried as well
@pytest.mark.parametrize("algorithm, recordings, why", [("fedrep", 1, ""), ("fedgen", 2, "kinds of local step")])
def test_what_cannot_be_compiled_is_found_in_its_recording(algorithm, recordings, why, monkeypatch):
    monkeypatch.setattr("apiece.lifts.compiled._by_torch", lambda graph: graph)
    lift, left = choice.tried(assemble(Config(**QUICK | {"steps": "12", "algorithm": algorithm})))
    assert len(lift.programs) == recordings and (why in left if why else not left)
    lift.close()


# cohorts and sizes catch a call that is larger than a gibibyte of parameters, and calls of unequal size
@pytest.mark.parametrize(
    ("size", "cohort", "chunk"), [(7850, 1000, 1000), (11_181_642, 10, 10), (11_181_642, 100, 20), (1 << 29, 3, 1)]
)
def test_a_gpu_gets_as_many_clients_at_once_as_fit(size, cohort, chunk):
    lift = choice.by_rule(SimpleNamespace(size=size), "cuda:1", cohort, 2)
    assert type(lift) is Graphs and lift.chunk == chunk and lift.workers == 1


def test_a_run_keeps_its_lift(monkeypatch):
    made = assemble(Config(**QUICK, workers=2))
    assert isinstance(choice.lift_of(made).lift, Threaded)
    assert isinstance(choice.lift_of(made, "Compiled(2, 2)").lift, Compiled)
    monkeypatch.setattr(worth, "compiling", lambda facts: worth.Worth(True, "always"))
    assert isinstance(choice.lift_of(made, "Threaded(2)").lift, Threaded)
