"""Bad input: one clear sentence on stderr, exit code 2, no traceback."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from support.outer import Ended, cli, run, sentence
from torch import nn

from apiece.config.settings import Config
from apiece.data.arrays import Dataset
from apiece.data.federation import Federation
from apiece.data.sources import load
from apiece.errors import USUAL, UserError
from apiece.experiment.folders import LOCK
from apiece.experiment.launch import federate
from apiece.experiment.result import place_of
from apiece.pieces.proximal import Proximal

EXPRESSIONS = [
    ({"algorithm": "scafold"}, "unknown name 'scafold'", "did you mean 'scaffold'", "48 to choose from. `apiece alg"),
    ({"algorithm": "scaffold + relaxd_init"}, "at character 12", "did you mean 'relaxed_init'"),
    ({"algorithm": "fedprox(nu=1)"}, "no argument 'nu'", "did you mean 'mu'"),
    ({"algorithm": "fedprox(mu=big)"}, "fedprox's mu must be a number, not big"),
    ({"algorithm": "fedprox(mu=-1)"}, "mu=-1", "0 or more"),
    ({"algorithm": "fedprox(0.1, start, 0.2)"}, "fedprox(mu=0.01, center=start)"),
    ({"algorithm": "fedprox(center=middle)"}, "fedprox(center=middle) is unknown", "start or server"),
    ({"algorithm": "scaffold(control=option_2)"}, "scaffold(control=option_2) is unknown", "difference"),
    ({"algorithm": "scaffold_p(init_control=ones)"}, "init_control=ones", "zero or grad"),
    ({"algorithm": "fedals(phase=middle)"}, "phase=middle", "last_step or first_step"),
    ({"algorithm": "period(body, 0)"}, "a period of 0 rounds", "1, 2, ..., or inf"),
    ({"algorithm": "period(body, 2.5)"}, "a period of 2.5 rounds"),
    ({"algorithm": "pefll(descriptor=last)"}, "descriptor=last", "first, batch, all"),
    ({"algorithm": "pefll(server=momentum)"}, "server=momentum", "adam, sgd"),
    ({"algorithm": "fedcog(shuffle=never)"}, "shuffle=never", "once or each_pass"),
    ({"algorithm": "fedcog(temperature=0)"}, "temperature=0", "above 0"),
    ({"algorithm": "relaxed_init(aggregate=mean)"}, "paper or delta"),
    ({"algorithm": "fedals(alpha=0)"}, "alpha is 1 or more"),
    ({"algorithm": "fedals(cohort=kept)"}, "held or redrawn"),
    ({"algorithm": "fedavg +"}, "at character 9"),
    ({"algorithm": ""}, "expected a name", "write it as in"),
    ({"algorithm": "__import__('os').system('true')"}, "cannot read", "put quotes"),
    ({"split": "dirichlt(0.1)"}, "did you mean 'dirichlet'"),
    ({"split": "iid + shards(2)"}, "names 2 things"),
    ({"optimizer": "sdg"}, "did you mean 'sgd'"),
    ({"optimizer": "yogi"}, "yogi is an optimizer of the server", "adamw or sgd"),
    ({"algorithm": "fednova", "optimizer": "adamw"}, "fednova", "sgd", "AdamW"),
    ({"server": "sgd(momentum=0.9)"}, "sgd is an optimizer of a client", "average"),
    ({"schedule": "cosin"}, "did you mean 'cosine'"),
    ({"augment": "flp"}, "did you mean 'flip'"),
    ({"model": "resnet"}, "did you mean 'resnet20'", "lenet"),
    ({"model": "Block"}, "there is no model 'Block'"),
    ({"model": "lenet"}, "16x16", "8x8"),
    ({"data": "cifar"}, "did you mean 'cifar10'"),
    ({"steps": "five"}, "uniform(10,50)"),
    ({"steps": "-5"}, "uniform(10,50)"),
    ({"steps": "0"}, "uniform(10,50)"),
    ({"steps": "uniform(5,1)"}, "low <= high"),
    ({"steps": "uniform(0,0)"}, "nobody"),
]  # fmt: skip


# a row catches a refusal that is gone or names another culprit
@pytest.mark.parametrize(("settings", "said"), [(row[0], row[1:]) for row in EXPRESSIONS])
def test_names_and_arguments(settings, said):
    sentence(run(**settings), *said)


@pytest.mark.parametrize(
    "name", "algorithm split model adapter steps schedule optimizer server augment track".split()
)
def test_an_expression_that_cannot_be_read_says_of_which_setting_it_is(name):
    said = f"{name}='mlp(': at character 5: expected a number or text"
    sentence(run(**{name: "mlp("}), said)
    given = {"steps": 1} | {name: "mlp("}
    with pytest.raises(UserError, match=re.escape(said)):  # of a program
        federate(**given)


COMPOSED = [
    ("fedinit + relaxed_init(beta=0.2)", "'relaxed_init(beta=0.2)' bring the same piece twice, Relaxed"),
    ("centralized + scaffold", "take it alone"),
    ("scaffold + scaffold_p", "'scaffold' and 'scaffold_p' bring the same piece twice, Scaffold"),
    ("fedavg_p(outer_shared=0.5) + scaffold_p(outer_shared=0.7)", "Descent(lr=0.5) and Descent(lr=0.7)", "server"),
    ("fedals(alpha=5, head=conv9)", "'conv9' matches no parameter", "head.weight, head.bias"),
    ("fedals(alpha=5, head=99)", "99 leading layers", "the model has 1"),
    ("fedavg_p(personal=\"fc*\")", "'fc*' matches no parameter", "head.weight"),
]  # fmt: skip


@pytest.mark.parametrize(("algorithm", "said"), [(row[0], row[1:]) for row in COMPOSED])
def test_what_cannot_be_composed(algorithm, said):
    sentence(run(algorithm=algorithm), *said)


SPLITS = [
    ({"split": "classes(11)"}, "per_client=11", "10 classes"),
    ({"clients": 1500}, "1437 samples", "1500 clients"),
    ({"split": "shards(1000)"}, "1437 samples", "6 clients", "1000 each"),
    ({"split": "dirichlet_capped(0.1, minimum=1000)"}, "1437 samples", "1000 each"),
    ({"split": "natural"}, "does not say whose"),
    ({"split": "dirichlet(0)"}, "alpha", "positive"),
    ({"split": 'saved("nowhere.npz")'}, "nowhere.npz"),
    ({"unseen": 6}, "unseen=6", "0 to 5"),
    ({"unseen": 1.5}, "unseen=1.5"),
    ({"validation": 1}, "validation=1"),
    ({"cohort": 7}, "7 clients a round", "6 are registered"),
    ({"cohort": 2.5}, "whole number"),
]


@pytest.mark.parametrize(("settings", "said"), [(row[0], row[1:]) for row in SPLITS])
def test_splits_that_cannot_be_made(settings, said):
    sentence(run(**settings), *said)


NUMBERS = (
    "clients rounds batch cohort absent lr clip eval_every panel target unseen validation noise_rgb noise_brightness "
    "workers checkpoint_every epochs steps"
).split()


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_out_of_range(name):
    sentence(run(**{name: -1}), name)


@pytest.mark.parametrize(
    "settings",
    [{"steps": 10**17}, {"steps": f"uniform(1,{10**17})"}, {"epochs": 10**17}, {"steps": lambda name: 10**400}],
    ids=["steps", "stragglers", "epochs", "by client"],
)
def test_local_work_without_end_is_refused_before_a_round(settings):
    given = {"clients": 4, "lift": "sequential", "on_round": lambda info: pytest.fail("a round has begun")}
    with pytest.raises(UserError, match=f"^{[*settings][0]}=.* is more local work .* a memory of .* GB: give fewer"):
        federate(**given | settings)


@pytest.mark.parametrize("name", ["data", "data_dir", "init", "out"])
def test_a_home_folder_that_no_shell_has_put_there(name):
    sentence(run(**{name: "~/mine"}), f"{name}='~/mine' begins with ~", "write the whole path")


# names catch a number unchecked, values a comparison that NaN or an infinite number passes
@pytest.mark.parametrize("name", ["lr", "cohort", "absent", "noise_rgb", "unseen", "validation", "clip", "target"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_numbers_that_are_none(name, value):
    sentence(run(**{name: value}), f"{name}={value}")


def test_all_problems_at_once():
    sentence(run(clients=0, rounds=0, lr=-1), "clients=0", "rounds=0", "lr=-1")


FLAGS = ["run --nonsense", "run --clients ten", "run --lift gpu", "run --seeds 0,a", "run --precision float16", "rnu",
         "", "resume", "algorithms --jsn"]  # fmt: skip


@pytest.mark.parametrize("words", FLAGS)
def test_flags_that_are_none(words):
    ended = cli(*words.split())
    assert ended.code == 2 and ended.err and not ended.out and "Traceback" not in ended.err


def test_seeds_all_differ():
    sentence(run(seeds="0,1,0"), "seeds=0,1,0")
    sentence(run("--seeds", "2", seeds="0,1"), "--seeds is given more than once", "write --seeds 0,1")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_devices():
    sentence(run(device="cuda"), "cuda", "--device cpu")
    sentence(run(device="tpu"), "'tpu'", "cpu or cuda")


WRONG = """
import sys
from apiece.cli import main
for words in (
    "run --algorithm scafold", "run --algorithm fedprox(nu=1)", "run --split dirichlt", "run --optimizer yogi",
    "run --server sgd", "run --schedule cosin", "run --augment flp", "run --lr -1", "grid --rows scafold --columns x",
):
    try:
        main(words.split())
    except SystemExit as end:
        assert end.code == 2, words
print("torch" in sys.modules, "numpy" in sys.modules)
"""


@pytest.mark.slow
def test_a_wrong_name_is_said_before_anything_heavy_is_loaded():
    ended = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True)
    assert ended.stdout == "False False\n" and ended.stderr.count("apiece: ") == 9, ended


@pytest.mark.parametrize("flag", ["--learning-rate", "--num_clients=3"])
def test_the_flag_of_another_library_is_answered_by_ours(flag):
    ended = cli("run", flag, "3")
    assert ended.code == 2 and ended.err in (
        "apiece: there is no flag --learning-rate; did you mean --lr?\n",
        "apiece: there is no flag --num-clients; did you mean --clients?\n",
    )


# a name catches an answer that is a guess by spelling
@pytest.mark.parametrize(("name", "ours"), USUAL.items())
def test_the_name_of_another_library_is_answered_by_ours_alone(name, ours):
    assert ours in {field.name for field in fields(Config)}
    refused(f"there is no setting {name!r}; did you mean {ours!r}? There are", **{name: 3})
    with pytest.raises(UserError) as caught:
        federate(**{name: 3})
    assert str(caught.value).count("'") == 4  # no other name


def test_a_proper_process_ends_so_too(tmp_path):
    """The same from the shell, where an import or an exit handler could still spoil it."""
    words = ["-m", "apiece", "run", "--algorithm", "scafold", "--out", str(tmp_path / "run")]
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    sentence(Ended(ended.returncode, ended.stdout, ended.stderr), "scaffold")
    assert not (tmp_path / "run").exists()


# --- configuration files ---------------------------------------------------------------------------------------------
TOML = [
    ("clients = 'ten'", "clients='ten'", "type int"),
    ("clients = 2.5", "clients=2.5"),
    ("rounds = true", "rounds=True"),
    ("tensorboard = 1", "tensorboard=1"),
    ("seeds = 3", "seeds=3"),
    ("seeds = ['a']", "seeds=['a']"),
    ("algorithm = ['fedavg']", "algorithm=['fedavg']"),
    ("client = 3", "no setting 'client'", "did you mean 'clients'"),
    ("precision = 'float16'", "did you mean 'bfloat16'"),
    ("config = 3", "no setting 'config'"),
    ("= 3", "no TOML file"),
    ("a = " + "[" * 5000 + "]" * 5000, "brackets are nested"),
    ("seed = " + "9" * 5000, "no TOML file"),
    ("seed = " + "9" * 30, "a number of 64 bits"),
    ('out = "a\\u0000b"', "no file can hold"),
    ('algorithm = "a\\u0000b"', "no file can hold"),
    ('out = ""', "out is empty"),
    ("lr = 1e400", "lr=inf must be finite"),
    ("steps = 5\nepochs = 2", "steps and epochs are both given, and only epochs would count: leave one out"),
    ("seed = 5\nseeds = [0, 1]", "seed and seeds are both given"),
    ("target-column = 'a'\ntarget_column = 'b'", "target_column is given twice, with - and with _"),
    ("rounds = 5\n[config]\nlr = 0.1", "'rounds' stands beside [config], where it would not count"),
    ("[config]\nlr = 0.1\n[own]\nrounds = 5", "'own' stands beside [config]"),
    ("metrics = ['f1']\n[config]\nlr = 0.1", "'metrics' stands beside [config]"),
]  # fmt: skip


CHECKED = ("no file can hold", "out is empty", "lr=inf must be finite")  # whoever said it


@pytest.mark.parametrize(("text", "said"), [(row[0], row[1:]) for row in TOML])
def test_configuration_files(text, said, tmp_path):
    (tmp_path / "it.toml").write_text(text)
    where = [] if said[0] in CHECKED else ["it.toml"]
    ended = cli("run", "--config", tmp_path / "it.toml", "--rounds", 1, "--model", "softmax_regression")
    sentence(ended, *where, *said)


def test_configuration_files_that_are_not_there(tmp_path):
    sentence(run("--config", tmp_path / "absent.toml"), "absent.toml", "No such file")
    sentence(run("--config", tmp_path), "Is a directory")
    sentence(run("--config"), "path of a TOML file")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    sentence(run("--config", tmp_path / "binary.toml"), "no TOML file")


# --- models and losses of one's own ----------------------------------------------------------------------------------
X, Y = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3


def refused(*said: str, model: nn.Module | None = None, **settings) -> None:
    with pytest.raises(UserError) as caught:
        federate(
            model or nn.Linear(4, 3),
            **({"data": (X, Y), "clients": 3, "rounds": 1, "split": "iid", "steps": 1} | settings),
        )
    assert all(text in str(caught.value) for text in said), str(caught.value)


def test_a_client_that_the_model_cannot_be_trained_on():
    """BatchNorm takes no batch of one: said before the run where local work has one, or a piece makes one."""
    norm = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    pool = (torch.from_numpy(X), torch.from_numpy(Y))

    def refuse(sizes: list[int], *said: str, **settings) -> None:
        rows = list(torch.arange(sum(sizes)).split(sizes))
        clients = Federation(pool, pool, rows, rows, [f"c{size}" for size in sizes])
        with pytest.raises(UserError) as caught:
            federate(norm, clients=clients, rounds=1, **settings)
        assert all(text in str(caught.value) for text in ("batch of one sample", *said)), str(caught.value)

    refuse([2, 1, 9], "'c1' (training samples: 1)", steps=2)
    refuse([8, 9], "'c9' (training samples: 9)", epochs=1, batch=4)
    halves, thirds, alone = "batch of fewer than 4", "batch of fewer than 6", "takes a gradient at a single sample, and"
    refuse([8, 2], "MetaStep", halves, "'c2' (training samples: 2)", algorithm="per_fedavg", steps=1)
    refuse([8], "MetaStep", halves, "'c8'", algorithm="per_fedavg", steps=1, batch=3)
    refuse([8], thirds, algorithm="per_fedavg(variant=hessian_free)", steps=1, batch=5)
    federate(norm, (X, Y), algorithm="per_fedavg", clients=3, split="iid", rounds=1, steps=1, batch=4)
    refuse([8], "FineTune", alone, algorithm="fine_tune(batch=1)", steps=1)
    refuse([8], "Newcomer", alone, algorithm="fedper(batch=1)", steps=1)
    refuse([8], "MoreauEnvelope", alone, algorithm="pfedme(batch=1)", steps=1)
    rows = list(torch.arange(42).split([33, 9]))  # the end of fine-tuning has one sample, which joins the others
    federate(norm, clients=Federation(pool, pool, rows, rows, ["a", "b"]), algorithm="fine_tune", rounds=1, steps=1)
    federate(norm, clients=Federation(pool, pool, [torch.arange(8)], [torch.arange(8)], ["one"]), rounds=1, epochs=1)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedper", "knn_per"])
def test_a_client_whose_only_test_sample_the_model_cannot_be_evaluated_on(algorithm):
    """BatchNorm without statistics takes no batch of one: said before the run. Of 101 samples none is left alone."""
    norm = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    pool = (torch.from_numpy(X), torch.from_numpy(Y))
    settings: dict[str, Any] = {"algorithm": algorithm, "rounds": 1, "steps": 1, "batch": 8, "buffers": "drop"}

    def measured(*sizes: int, **other: str) -> dict[str, float]:
        train, test = torch.arange(60).split(20), torch.arange(101).split(list(sizes))
        tests = (torch.cat([pool[0], pool[0][:41]]), torch.cat([pool[1], pool[1][:41]]))
        clients = Federation(pool, tests, list(train), list(test), ["a", "b", "c"])
        return federate(norm, clients=clients, **settings | other).metrics[-1]

    said = r"^client 'a' has one test sample, and the model cannot be evaluated on a batch of one .*Expected more"
    with pytest.raises(UserError, match=said):
        measured(1, 7, 93)
    assert len({measured(*sizes)["global_loss"] for sizes in ((2, 6, 93), (0, 0, 101))}) == 1
    measured(1, 7, 93, buffers="average")


def test_models_and_losses_that_do_not_fit():
    refused("output has shape [2]", "there are 3 classes", "3 scores", model=nn.Linear(4, 2))
    wide = "begin with a layer that takes as many, as nn.Linear(4, ...)"
    refused("does not take samples of shape [4]", wide, model=nn.Linear(5, 3))
    refused("output has shape []", model=nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)))
    refused("loss does not take outputs [2, 3] and labels [2]", loss=lambda o, y: nn.functional.nll_loss(o, y[None]))
    refused("loss does not take", loss=lambda outputs: outputs.sum())
    two = {"model": nn.Linear(4, 2), "loss": lambda o, y: ((o - y) ** 2).mean(), "metrics": {"one": lambda o, y: 1.0}}
    refused("loss does not take outputs [3, 2] and labels [3]", data=(X, Y % 2), **two)  # of two samples it does
    refused("samples of shape []", "a sample is one number: give x[:, None]", data=(X[:, 0], Y))
    refused("loss gives numbers of shape [2]", loss=lambda o, y: nn.functional.cross_entropy(o, y, reduction="none"))
    refused("'metric' gives 2 numbers for 3 samples", "one value per sample", metric=lambda outputs, y: outputs[0, :2])
    refused("no trainable parameter", model=nn.Flatten())
    refused("hidden generator", "leave that out", model=nn.Sequential(nn.RReLU(), nn.Linear(4, 3)))
    refused("augment='flip' is for images", augment="flip")
    refused("seeds=[0, 1]", "one run", seeds=(0, 1))
    refused("no setting 'round'", "did you mean 'rounds'", round=3)


class Own(nn.Module):
    """A linear model with a function of itself and x as its forward pass, and a parameter that nothing uses."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.linear, self.unused, self.function = nn.Linear(4, 3), nn.Parameter(torch.ones(2)), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def test_models_and_losses_that_fail_are_said_before_the_first_round():
    """Whatever a program raises; a gradient is tried, too, as some fail in training alone."""
    own = lambda function, **more: {"model": Own(function), **more}
    plain = lambda m, x: m.linear(x)
    takes, trained = "the model does not take samples of shape [4]: ", "the model cannot be trained on samples of shape"
    refused(takes, "KeyError: 'a'.", **own(lambda m, x: {}["a"]))
    refused(takes, "StopIteration.", **own(lambda m, x: next(iter([]))))
    refused(trained, "ZeroDivisionError: ", **own(lambda m, x: 1 / 0 if m.training else m.linear(x)))
    refused(trained, "mat1 and mat2", **own(lambda m, x: m.linear(x[:, :3] if m.training else x)))
    refused(takes, "have the same dtype, but got Double and Float.", **own(lambda m, x: m.linear(x.double())))
    refused(trained, "inplace operation", **own(lambda m, x: (y := m.linear(x).sigmoid()) * y + y.add_(1)))
    refused(trained, "the loss has no gradient", **own(lambda m, x: m.linear(x).detach()))
    refused(trained, "the loss has no gradient", **own(plain, loss=lambda o, y: (o.argmax(1) != y).float().mean()))
    refused("the loss does not take outputs [2, 3]", "OSError: gone", **own(plain, loss=lambda o, y: gone()))
    assert federate(Own(plain), (X, Y), clients=3, rounds=1, split="iid", steps=1).metrics


def gone() -> None:
    raise OSError("gone")


def test_a_model_that_fails_at_a_batch_of_one_is_refused_where_there_is_one():
    """It is tried anyway, and may fail by any error."""
    model = Own(lambda m, x: m.linear(x) if len(x) > 1 or not m.training else 1 / 0)
    federate(model, (X, Y), clients=3, rounds=1, split="iid", steps=1)
    refused("has a batch of one, and the model cannot", "ZeroDivisionError", model=model, batch=1)


LONG, DIGITS = "a" * 300, "9" * 5000
LENGTHY = [
    *(({name: LONG}, f"{name}='aa", "... has a name of more than") for name in ("data", "out", "init", "data_dir")),
    *(({name: DIGITS}, f"{name}='999", "... has a number of more than 300") for name in ("steps", "resize")),
    ({"steps": f"uniform(1,{DIGITS})"}, "more than 300 digits"),
    ({"cohort": DIGITS}, "cohort='999", "... is not allowed"),
    ({"rounds": DIGITS}, "'999", "... is not a whole number"),
    ({"split": f'saved("{LONG}")'}, "there is no such file"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "said"), [(row[0], row[1:]) for row in LENGTHY])
def test_names_and_numbers_of_great_length(settings, said):
    assert len(sentence(run(**settings), *said)) < 900
    if "rounds" not in settings:
        with pytest.raises(UserError):
            federate(**settings)


def test_data_of_a_name_of_great_length():
    with pytest.raises(UserError, match="is neither a data set nor a path"):
        load(LONG)
    with pytest.raises(UserError, match="no such file or folder"):
        load(f"folder/{LONG}.npz")


OTHERS = [
    ({"model": nn.Linear}, "model is the class Linear: give an instance"),
    ({"model": None}, "model is a NoneType"),
    ({"loss": nn.CrossEntropyLoss}, "loss is the class CrossEntropyLoss: give an instance"),
    ({"loss": 5}, "loss is 5, which cannot be called"),
    ({"metric": {"right": len}}, "metric is {'right': ", "cannot be called"),
    ({"on_round": 5}, "on_round is 5, which cannot be called"),
    ({"watchers": len}, "watchers is <built-in function len>: give a list of functions"),
    ({"watchers": [5]}, "a watcher is 5, which cannot be called"),
    ({"clients": [1, 2]}, "clients is a list", "Federation"),
    ({"clients": "ten"}, "clients is a str"),
    ({"clients": 2.5}, "clients is a float"),
    ({"clients": Federation}, "clients is the class Federation"),
    ({"data": Dataset}, "data is the class Dataset"),
    ({"data": Federation((torch.ones(3, 4),), (), [], [], [])}, "data is a Federation", "clients="),
    ({"algorithm": Proximal(0.1)}, "algorithm is a piece: give apiece.algorithm(Proximal(mu=0.1"),
    ({"algorithm": Proximal}, "algorithm is the class Proximal"),
    ({"algorithm": 5}, "algorithm is a int"),
    ({"seed": 10**5000}, "seed=a number of 16610 bits", "64 bits"),
    ({"lr": 10**5000}, "lr=a number of 16610 bits"),
    ({"out": "a\0b"}, "out='a\\x00b' has a character"),
    ({"out": "\ud800"}, "out='\\ud800' has a character"),
    ({"out": ""}, "out is empty"),
    ({"data": ""}, "data is empty"),
    ({"init": ""}, "init is empty"),
    ({"model": "mlp(hidden=abc)"}, "hidden must be a list"),
    ({"epochs": 2}, "steps and epochs are both given, and only epochs would count: leave one out."),
    ({"epochs": 2, "steps": len}, "steps and epochs are both given: leave one out."),
    ({"best-by": "a", "best_by": "b"}, "best_by is given twice"),
]  # fmt: skip


# a row catches an object that is taken until it ends in a traceback
@pytest.mark.parametrize(("given", "said"), [(row[0], row[1:]) for row in OTHERS])
def test_objects_of_another_kind(given, said):
    with pytest.raises(UserError) as caught:
        federate(**({"rounds": 1, "steps": 1} | given))
    assert all(text in str(caught.value) for text in said) and "\n" not in str(caught.value), str(caught.value)


def test_a_clients_model_is_had_by_its_name():
    result = federate(
        nn.Linear(4, 3), (X, Y), algorithm="fedper(personal=bias)", clients=3, rounds=1, split="iid", steps=1
    )
    assert torch.equal(result.model("client-1")["bias"], result.model(np.int64(1))["bias"])
    assert not torch.equal(result.model("client-1")["bias"], result.model("client-2")["bias"])
    for client in (7, -1, 1.5, [0]):
        with pytest.raises(UserError, match="there is no client .* from 0 to 2, or a name as a text, .* is 'client-0'"):
            result.model(client)  # pyright: ignore[reportArgumentType]
    for name in ("client-7", "1"):
        with pytest.raises(UserError, match=f"no client has the name '{name}'; .*llowed: client-0, client-1, client-2"):
            result.model(name)
    assert set(result.accuracy) == {"client-0", "client-1", "client-2"}


def test_a_number_that_is_a_clients_name_is_no_other_clients_place():
    """Clients that are numbered from 0 in their order have both alike; a table's hospitals 1 to 4 do not."""
    given = {7: (X, Y), "3.0": (X[:9], Y[:9]), 1: (X[:6], Y[:6]), 0: (X[:12], Y[:12])}
    result = federate(nn.Linear(4, 3), given, algorithm="local", rounds=1, steps=1)
    assert torch.equal(result.model(7)["bias"], result.model("7")["bias"])
    assert torch.equal(result.model(np.int64(0))["bias"], result.model("0")["bias"])
    assert not torch.equal(result.model(1)["bias"], result.model("3.0")["bias"])
    for client in (2, 3):
        with pytest.raises(UserError, match=f"no client has the name '{client}'; .*llowed: 0, 1, 3.0, 7"):
            result.model(client)
    assert [place_of(client, ["0", "1", "2"]) for client in (0, 1, 2, "2")] == [0, 1, 2, 2]
    assert [place_of(client, ["a", "b1"]) for client in (0, 1, "a")] == [0, 1, 0]


def test_a_run_that_ends_far_above_guessing_says_so():
    ended = run(lr=1e18, rounds=1)
    assert ended.code == 0 and "the training loss is" in ended.err and "far more than guessing costs" in ended.err
    assert "training loss" not in run(rounds=1).err


def test_data_that_are_none():
    for data, said in (({"x": X}, "dict"), ((X, Y[:-1]), "59 labels"), ((X[:0], Y[:0]), "0 training samples")):
        with pytest.raises(UserError, match=said):
            federate(nn.Linear(4, 3), data, clients=3)
    empty = [torch.zeros(0, dtype=torch.int64)] * 2
    pool = (torch.from_numpy(X), torch.from_numpy(Y))
    with pytest.raises(UserError, match="no client has a training sample"):
        federate(nn.Linear(4, 3), clients=Federation(pool, pool, empty, empty, ["a", "b"]))
    rows = [torch.arange(4), torch.arange(4, 8)]
    with pytest.raises(UserError, match="clients= are ready, and split would change nothing: leave it out"):
        federate(nn.Linear(4, 3), clients=Federation(pool, pool, rows, rows, ["a", "b"]), split="iid")


def test_files_that_are_no_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("junk.npz", "junk.csv", "junk.parquet"):
        (tmp_path / name).write_bytes(b"junk" if name != "junk.csv" else b"")
        sentence(run(data=name), name)
    np.savez("odd.npz", a=X)
    sentence(run(data="odd.npz"), "x_train and y_train")
    sentence(run(split='saved("odd.npz")'), "no split")
    sentence(run(split='saved("junk.npz")'), "junk.npz")
    sentence(run(init="junk.npz"), "junk.npz")
    sentence(run(data="absent.npz"), "no such file")
    (tmp_path / "folder").mkdir()
    sentence(run(data="folder"), "no images")


def test_a_missing_data_set_says_what_to_put_where(tmp_path, monkeypatch):
    import datasets

    def offline(*name):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    monkeypatch.delenv("APIECE_DATA", raising=False)
    sentence(
        run(data="cifar10", data_dir=tmp_path),
        "no cifar10.npz",
        str(tmp_path),
        "x_train, y_train, x_test, y_test",
        "--data-dir",
    )
    sentence(run(data="cifar10", data_dir=tmp_path / "absent"), "absent", "there is no such folder")


# --- folders ---------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_folders_that_exist(tmp_path):
    assert run(out=tmp_path / "run").code == 0
    before = sorted((tmp_path / "run").iterdir())
    sentence(run(out=tmp_path / "run"), "exists", "apiece resume")
    assert sorted((tmp_path / "run").iterdir()) == before
    (tmp_path / "file").write_text("")
    assert "resume" not in sentence(run(out=tmp_path / "file"), "exists", "what lies there is no run")
    sentence(run(out=tmp_path / "file" / "below"), "file")
    (tmp_path / "many" / "seed-1").mkdir(parents=True)
    sentence(run(out=tmp_path / "many", seeds="0,1"), "exists")
    assert not (tmp_path / "many" / "seed-0").exists()  # refused before any work


@pytest.mark.parametrize("command", ["resume", "export", "compare", "report"])
def test_folders_that_are_no_run(command, tmp_path):
    more = ["--out", tmp_path / "out.html"] if command != "resume" else []
    (tmp_path / "empty").mkdir()
    sentence(cli(command, tmp_path / "empty", *more), "empty")
    sentence(cli(command, tmp_path / "absent", *more), "absent")
    assert not (tmp_path / "out.html").exists()


@pytest.mark.slow
def test_a_folder_that_another_process_works_on(tmp_path):
    import fcntl
    import os

    assert run(out=tmp_path / "run").code == 0
    held = os.open(tmp_path / "run" / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        sentence(cli("resume", tmp_path / "run", "--rounds", 4), "another process")
    finally:
        os.close(held)


@pytest.mark.parametrize(
    "words, there",
    [
        (["run", "--config", "stdy.toml"], "study.toml"),
        (["run", "--plugin", "ide.py", "--algorithm", "idea"], "idea.py"),
        (["run", "--init", "modl.safetensors"], "model.safetensors"),
        (["run", "--split", "saved(splt.npz)"], "split.npz"),
        (["compare", "runz"], "runs"),
    ],
)
def test_a_path_with_a_slip_gets_the_one_that_may_be_meant(words, there, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "may be meant" not in sentence(cli(*words))
    (tmp_path / there).write_text("")
    sentence(cli(*words), f"{there!r} may be meant, or ")
