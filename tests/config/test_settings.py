"""The settings of a run do what they say."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.outer import TINY, cli, config, metrics, run

from apiece.config.assemble import assemble
from apiece.config.tables import flags, from_toml
from apiece.data.split import Split
from apiece.errors import UserError
from apiece.experiment import folders, identity
from apiece.experiment.launch import federate
from apiece.experiment.result import Result
from apiece.experiment.run import execute

pytestmark = pytest.mark.usefixtures("no_report")


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> str:
    """Color images of three classes that differ in their brightness, some of which a client is said to own."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    x = np.clip(rng.normal(60 + 60 * y[:, None, None, None], 30, (120, 8, 8, 3)), 0, 255).astype(np.uint8)
    path = tmp_path_factory.mktemp("images") / "images.npz"
    np.savez(path, x_train=x[:90], y_train=y[:90], x_test=x[90:], y_test=y[90:], natural_train=np.arange(90) % 6)
    return str(path)


def made(**settings: Any) -> Result:
    return federate(**(TINY | settings))


def last(result: Result) -> dict[str, Any]:
    return result.metrics[-1]


def vector(result: Result) -> torch.Tensor:
    return result.server.params


def test_panel():
    """Personal metrics are from a fixed panel before the end, when they are from all clients."""
    whole, some = made(split="dirichlet(0.1)"), made(split="dirichlet(0.1)", panel=2)
    assert len(whole.accuracy) == len(some.accuracy) == 6
    key = "personal_accuracy_mean"
    assert last(whole)[key] == last(some)[key] and whole.metrics[0][key] != some.metrics[0][key]
    assert torch.equal(vector(whole), vector(some))


# --- how many clients a round ---------------------------------------------------------------------------------------
ASKED = [(1, 1), (3, 3), (1.0, 6), (0.5, 3), ("1", 1), ("1.0", 6), ("100%", 6), ("50%", 3), (np.int64(1), 1), (6.0, 6)]


@pytest.mark.parametrize(("cohort", "clients"), ASKED, ids=map(str, ASKED))
def test_a_whole_number_is_so_many_clients_and_a_share_so_many_of_all(cohort, clients):
    result = made(cohort=cohort, rounds=1)
    assert result.experiment.cohort == result.metrics[0]["cohort"] == clients


@pytest.mark.slow
@pytest.mark.parametrize(("text", "clients"), [("1", 1), ("1.0", 6), ("100%", 6), ("50%", 3), ("3", 3)])
def test_the_same_on_the_command_line_and_in_toml(text, clients, tmp_path):
    """The start says it, the folder keeps it, and a file or the folder's own settings mean it."""
    said = run(cohort=text, rounds=1, out=tmp_path / "run")
    assert said.code == 0 and f"{clients} of 6 clients a round" in said.out
    again = cli("run", "--config", tmp_path / "run" / "run.toml", "--out", tmp_path / "again")
    assert again.code == 0 and f"{clients} of 6 clients a round" in again.out
    kept = from_toml(tmp_path / "run" / "run.toml")
    assert cli("run", *shlex.split(flags(kept)), "--out", tmp_path / "flags").code == 0
    assert {metrics(tmp_path / name)[0]["cohort"] for name in ("run", "again", "flags")} == {clients}
    (tmp_path / "own.toml").write_text(f"cohort = {text}\n" if "%" not in text else f'cohort = "{text}"\n')
    assert assemble(replace(from_toml(tmp_path / "own.toml"), clients=6)).cohort == clients


def test_one_client_and_all_are_two_runs(tmp_path):
    one, everyone = config(cohort=1, out=str(tmp_path / "run")), config(cohort=1.0)
    assert identity.digest(one) != identity.digest(everyone)
    folders.write_config(tmp_path / "run", one)
    with pytest.raises(UserError, match=r"cohort is 1 there and 1\.0 here"):
        identity.refuse_another(tmp_path / "run", everyone)
    assert identity.digest(config(cohort=3)) == identity.digest(config(cohort=3.0))  # as folders have it that are there


@pytest.mark.parametrize("cohort", ["half", "ten%", 0, -1, 0.0, "0%", 1.5, 7, True, "120%", "nan"])
def test_what_is_no_number_of_clients_is_refused(cohort):
    with pytest.raises(UserError, match="cohort"):
        made(cohort=cohort)


def test_evaluation_every_so_often():
    result = made(rounds=5, eval_every=2)
    assert [info["round"] for info in result.metrics if "global_accuracy" in info] == [2, 4, 5]
    assert torch.equal(vector(result), vector(made(rounds=5)))


def test_init(tmp_path):
    first = made(out=str(tmp_path / "run"), rounds=4, steps=10)
    state = load_file(tmp_path / "run" / "model.safetensors")
    second = made(init=str(tmp_path / "run" / "model.safetensors"), lr=0.0, rounds=1)
    assert (
        torch.equal(vector(first), vector(second)) and last(second)["global_accuracy"] == last(first)["global_accuracy"]
    )
    assert torch.equal(second.model()["head.weight"], state["head.weight"])


def test_unseen_clients_and_validation(tmp_path):
    result = made(unseen=2, validation=0.25, out=str(tmp_path / "run"))
    split = Split.load(tmp_path / "run" / "split.npz")
    assert split.unseen == (4, 5) and all(
        abs(len(v) / (len(v) + len(t)) - 0.25) < 0.02 for v, t in zip(split.validation, split.train)
    )
    assert {"unseen_accuracy", "unseen_adapted_accuracy"} <= set(last(result)) and last(result)["cohort"] == 4
    assert result.clients.touched() == [0, 1, 2, 3]
    share = made(unseen=0.34)
    assert last(share)["cohort"] == 4


def test_absent_clients():
    result = made(absent=0.5, rounds=6)
    answered = [info["answered"] for info in result.metrics]
    assert 0 < sum(answered) < 36 and [info["cohort"] for info in result.metrics] == [6] * 6


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fedals(alpha=2)", "scaffold_p + relaxed_init(beta=0.1)"])
def test_when_nobody_answers_nothing_changes(algorithm, tmp_path):
    settings = {"algorithm": algorithm, "absent": 1.0, "server": "momentum(0.9)", "model": "mlp(hidden=[4])"}
    ended = run(**settings, out=tmp_path / "run")
    assert ended.code == 0 and "nobody answered" in " ".join(ended.out.split())
    infos = metrics(tmp_path / "run")
    assert [(info["answered"], info["cohort"], info["bytes_up"]) for info in infos] == [(0, 6, 0)] * 3
    assert len({info["global_loss"] for info in infos}) == 1
    experiment = assemble(config(**settings))
    result = execute(experiment)
    assert torch.equal(vector(result), experiment.federated.setup.initial) and not result.clients.touched()
    assert all(
        not leaf.any() for leaf in torch.utils._pytree.tree_leaves((result.server.optimizer, result.server.memory))
    )


def test_cohorts():
    assert {info["cohort"] for info in made(cohort=0.5).metrics} == {3}
    assert {info["cohort"] for info in made(cohort=2).metrics} == {2}
    sizes = [info["cohort"] for info in made(sampling="bernoulli", cohort=0.5, rounds=12).metrics]
    assert len(set(sizes)) > 2 and min(sizes) > 0 and 3 < sum(sizes) / 4 < 15


@pytest.mark.slow
def test_precision():
    single, double, half = (made(precision=name) for name in ("float32", "float64", "bfloat16"))
    assert vector(single).dtype == torch.float32 and vector(double).dtype == torch.float64
    assert vector(half).dtype == torch.float32  # the passes alone are in bfloat16
    assert 0 < float((vector(single) - vector(double)).abs().max()) < 1e-5
    assert 1e-5 < float((vector(single) - vector(half)).abs().max()) < 1e-1


def test_steps_and_epochs():
    assert {info["steps"] for info in made().metrics} == {12}
    drawn = [info["steps"] for info in made(steps="uniform(1,5)", rounds=6).metrics]
    assert len(set(drawn)) > 1 and min(drawn) >= 6 and max(drawn) <= 30
    result = made(steps="50", epochs=2, batch=100)  # 50 is the default, which folders may have beside
    sizes = [result.experiment.federation.size(c) for c in range(6)]
    assert last(result)["steps"] == sum(2 * -(-size // 100) for size in sizes)


@pytest.mark.slow
def test_schedules_optimizers_and_weighting():
    plain = made()
    for settings in ({"schedule": "exponential(0.5)"}, {"optimizer": "sgd(momentum=0.9)"}, {"optimizer": "adamw"},
                     {"clip": 0.01}, {"server": "adam(lr=0.01)"}, {"split": "quantity(0.5)"}):  # fmt: skip
        assert not torch.equal(vector(plain), vector(made(**settings))), settings
    kept = {"optimizer": "sgd(momentum=0.9)", "optimizer_state": "kept"}
    assert not torch.equal(vector(made(**kept)), vector(made(optimizer="sgd(momentum=0.9)")))
    samples, uniform = (made(split="quantity(0.5)", weighting=name) for name in ("samples", "uniform"))
    assert not torch.equal(vector(samples), vector(uniform))


def test_seeds_decide_everything():
    assert torch.equal(vector(made(seed=3)), vector(made(seed=3)))
    assert not torch.equal(vector(made(seed=3)), vector(made(seed=4)))


def test_all_algorithms_see_the_same_cohorts_and_clients():
    settings = {"cohort": 0.5, "split": "dirichlet(0.1)", "absent": 0.3, "model": "mlp(hidden=[4])"}
    one, two = (made(algorithm=name, **settings) for name in ("fedavg", "fedals(alpha=2) + scaffold"))
    assert [info["answered"] for info in one.metrics] == [info["answered"] for info in two.metrics]
    assert one.clients.touched() == two.clients.touched()


@pytest.mark.slow
def test_augmentation_and_noise_on_images(images):
    plain = {"data": images, "model": "cnn", "split": "natural", "rounds": 2}
    base = made(**plain)
    assert sorted(base.experiment.federation.names) == [str(owner) for owner in range(6)]
    for settings in ({"augment": "flip"}, {"augment": "crop(2)"}, {"augment": "flip + crop(2)"}, {"noise_rgb": 0.5},
                     {"noise_brightness": 0.5}):  # fmt: skip
        result = made(**plain, **settings)
        assert not torch.equal(vector(result), vector(base)), settings
        assert torch.equal(vector(result), vector(made(**plain, **settings)))
        test = result.experiment.federation.test_pool[0]
        assert torch.equal(test, base.experiment.federation.test_pool[0])  # test images are as they were


def test_buffers_by_policy(images):
    bn = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(144, 3)
    )
    settings = {key: value for key, value in TINY.items() if key != "model"} | {"split": "natural"}
    results = {name: federate(bn, images, buffers=name, **settings) for name in ("average", "local", "drop")}
    assert all("global_accuracy" in last(result) for result in results.values())
    moved = [results[name].model()["1.running_mean"].abs().sum() > 0 for name in ("average", "local")]
    assert all(moved)
    own = [results["local"].model(client)["1.running_mean"] for client in (0, 1)]
    assert not torch.equal(*own)


def test_lifts_of_the_exact_class_are_bitwise_the_same():
    settings = {"model": "mlp(hidden=[8])", "algorithm": "fedals(alpha=2) + scaffold", "clip": 1.0}
    one, two, many = (made(**settings, lift=lift, workers=workers) for lift, workers in
                      (("sequential", 1), ("threaded", 2), ("threaded", 5)))  # fmt: skip
    assert torch.equal(vector(one), vector(two)) and torch.equal(vector(one), vector(many))
    assert one.clients.digest() == two.clients.digest() == many.clients.digest()
    vectorized = made(**settings, lift="vectorized", precision="float64")
    assert torch.allclose(vector(vectorized), vector(made(**settings, precision="float64")), rtol=0, atol=1e-10)


def test_drift_is_measured_as_asked():
    assert "divergence_all" in last(made()) and "consensus" in last(made())
    assert "divergence_all" not in last(made(drift="selected")) and "consensus" in last(made(drift="selected"))
    assert not {"divergence_selected", "consensus"} & set(last(made(drift="none")))
    assert torch.equal(vector(made()), vector(made(drift="none")))


def test_every_setting_is_named_in_the_run_toml(tmp_path: Path):
    from apiece.config.tables import from_toml

    settings = config(out=str(tmp_path / "run"), clip=1.0, panel=3, target=0.5)
    execute(assemble(settings), tmp_path / "run")
    assert from_toml(tmp_path / "run" / "run.toml") == settings
