"""The command line: what each command prints, writes and refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.folders import write
from support.outer import TINY, cli, draw_no_page_of_one_run, metrics, run, sentence

import apiece.__main__ as module
from apiece.data.split import Split
from apiece.experiment import run as run_module
from apiece.experiment import saved
from apiece.experiment.folders import say_once
from apiece.networks.models import mlp, softmax_regression
from apiece.report import page as report
from apiece.system import files

MEASURED = set(
    "round cohort answered skipped seconds train_loss steps divergence_selected divergence_all consensus "
    "update_norm_mean update_norm_std global_accuracy global_loss personal_accuracy_mean personal_accuracy_std "
    "personal_accuracy_worst_decile gradient_dissimilarity numbers_up numbers_down bytes_up bytes_down".split()
)


LIGHT = ["--help", "run --help", "grid --help", "resume --help", "compare --help", "algorithms", "data",
         "algorithms --json", "data --json", "run --nonsense"]  # fmt: skip
HEAVY = "scipy sklearn matplotlib pandas pyarrow datasets transformers peft flwr jinja2 torch._dynamo sympy"
ASKED = """
import sys
from apiece.cli import main
try:
    main(sys.argv[2:])
except SystemExit:
    pass
heavy = set(sys.argv[1].split()) & set(sys.modules)
assert not heavy, heavy
"""


def asked(heavy, *words):
    """The process of a command that must not load these modules."""
    ended = subprocess.run([sys.executable, "-c", ASKED, heavy, *words], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended


@pytest.mark.slow
@pytest.mark.parametrize("words", LIGHT)
def test_what_needs_no_torch_loads_none(words):
    ended = asked(f"torch numpy {HEAVY}", *words.split())
    assert ended.stdout or "--nonsense" in ended.stderr


@pytest.mark.slow
def test_a_run_loads_only_what_it_computes_with():
    """scikit-learn, whose digits a run reads, takes as long to import as torch does."""
    assert "round 1 of 1" in asked(HEAVY, "run", "--rounds", "1").stdout


def test_listings():
    algorithms = json.loads(cli("algorithms", "--json").out)
    names = {entry["name"] for entry in algorithms}
    some = "fedavg fedprox scaffold fedinit relaxed_init fedals fedavg_p scaffold_p centralized local"
    assert names >= set(some.split())
    data = json.loads(cli("data", "--json").out)
    assert {"digits", "fashion-mnist", "cifar10", "dirichlet", "classes", "natural"} <= {
        entry["name"] for entry in data
    }
    assert all(entry["about"] and "\n" not in entry["about"] for entry in algorithms + data)
    lines = cli("algorithms").out.splitlines()
    assert len(lines) == len(algorithms) and any(
        line.startswith("fedprox(mu=0.01, center=start)") and "Li et al. 2020" in line for line in lines
    )


def test_help_names_every_setting():
    from dataclasses import fields

    from apiece.config.settings import Config

    for command in ("run", "grid"):
        text = cli(command, "--help").out
        assert all(f"--{f.name.replace('_', '-')}" in text for f in fields(Config))
    assert "--config" in cli("run", "--help").out


@pytest.mark.parametrize("command", "resume compare report watch figure export personalize verify completion".split())
def test_help_says_what_an_argument_without_a_flag_is(command):
    """One that has no text is shown with the name of its field in the program."""
    assert not re.search(r"(folders?|card|shell) \((required|default)", cli(command, "--help").out)


def test_help_of_join_says_that_its_state_is_the_nodes_own():
    assert "apiece serve" not in cli("join", "--help").out


def test_help_of_resume_says_that_a_changed_file_of_settings_does_not_count():
    told = " ".join(cli("resume", "--help").out.replace("│", " ").split())
    assert "changes to the file that `apiece run --config` read do not count" in told


def test_help_groups_the_settings_with_those_that_matter_most_first():
    """Each stands in one group, and says there what it is."""
    from dataclasses import fields

    from apiece.config.settings import GROUPS, Config, about

    names = [name for group in GROUPS.values() for name in group.split()]
    assert sorted(names) == sorted(f.name for f in fields(Config)) == sorted(about()) and all(about().values())
    text = cli("run", "--help").out
    places = [text.index(f" {title.replace('_', '-')} options ") for title in GROUPS]
    assert places == sorted(places) and places[0] < text.index("--cohort") < places[1] < text.index("--unseen")


def test_a_run_folder(tmp_path):
    folder = tmp_path / "run"
    ended = run(algorithm="scaffold + relaxed_init(beta=0.1)", out=folder, unseen=1, eval_every=2)
    assert ended.code == 0 and "report.html" in ended.out and "Global" in ended.out
    names = "checkpoints client_metrics.jsonl clients.json clients.rows metrics.jsonl model.safetensors report.html"
    assert sorted(path.name for path in folder.iterdir()) == [*names.split(), "run.toml", "split.npz"]
    table = tomllib.loads((folder / "run.toml").read_text())
    assert table["config"]["algorithm"] == "scaffold + relaxed_init(beta=0.1)" and table["config"]["seed"] == 0
    assert table["resolved"]["parameters"] == 650 and {"torch", "python", "apiece"} <= set(table["versions"])
    infos = metrics(folder)
    assert [info["round"] for info in infos] == [1, 2, 3]
    assert set(infos[2]) >= MEASURED | {"unseen_accuracy", "adapted_accuracy", "unseen_adapted_accuracy"}
    assert "global_accuracy" not in infos[0] and "global_accuracy" in infos[1]
    clients = json.loads((folder / "clients.json").read_text())
    assert len(clients) == 6 and [client["seen"] for client in clients] == [True] * 5 + [False]
    split = Split.load(folder / "split.npz")
    assert [client["samples"] for client in clients] == [len(part) for part in split.train]
    assert [client["tests"] for client in clients] == [len(part) for part in split.test]
    assert sum(map(sum, (client["counts"] for client in clients))) == 1437
    softmax_regression((1, 8, 8), 10).load_state_dict(load_file(folder / "model.safetensors"))
    assert "<svg" in (folder / "report.html").read_text()
    assert len(list((folder / "checkpoints").iterdir())) == 2


def test_a_configuration_file_and_flags_over_it(tmp_path, no_report):
    (tmp_path / "it.toml").write_text('algorithm = "scaffold"\nbatch = 4\nclients = 4\neval-every = 2\nsteps = 3\n')
    words = "--rounds 2 --batch 16 --model softmax_regression --out".split()
    assert cli("run", "--config", tmp_path / "it.toml", *words, tmp_path / "run").code == 0
    config = tomllib.loads((tmp_path / "run" / "run.toml").read_text())["config"]
    expected = {"algorithm": "scaffold", "batch": 16, "clients": 4, "eval_every": 2, "steps": "3"}
    assert expected.items() <= config.items()
    again = cli("run", f"--config={tmp_path / 'run' / 'run.toml'}", "--out", tmp_path / "again")  # which repeats it
    assert again.code == 0
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "again"))
    assert one == other
    assert cli("run", "--config", tmp_path / "run" / "run.toml").code == 2  # whose folder exists


@pytest.mark.slow
def test_several_seeds(tmp_path, monkeypatch):
    draw_no_page_of_one_run(monkeypatch)
    ended = run(seeds="0,1", out=tmp_path / "runs", target=0.3, rounds=4, steps=10)
    assert (
        ended.code == 0
        and "±" in ended.out
        and "over 2 seeds" in ended.out
        and "To a global accuracy of 30 %" in ended.out
    )
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"seed-0", "seed-1", "run.toml", "report.html"}
    first, second = ((tmp_path / "runs" / f"seed-{seed}" / "model.safetensors").read_bytes() for seed in (0, 1))
    assert first != second
    assert run(seed=1, out=tmp_path / "one", rounds=4, steps=10).code == 0
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == second
    assert "±" in (tmp_path / "runs" / "report.html").read_text()
    listed = cli("compare", tmp_path / "runs", "--no-references")
    assert listed.code == 0 and "over 2 seeds" in listed.out and "±" in listed.out
    said = "holds several runs: name one of them, such as", "seed-0"
    sentence(cli("export", tmp_path / "runs", "--out", tmp_path / "model"), *said)
    words = "--data", tmp_path / "client.npz", "--out", tmp_path / "model"
    sentence(cli("personalize", tmp_path / "runs", *words), *said)


def test_a_folder_of_one_seed_is_taken_for_its_run(tmp_path):
    assert run(seeds="3", out=tmp_path / "runs", rounds=1, steps=1).code == 0
    for folder, file in (("runs", "one"), ("runs/seed-3", "two")):
        assert cli("export", tmp_path / folder, "--out", tmp_path / file).code == 0
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    own = tmp_path / "runs" / "seed-3" / "model.safetensors"
    words, before = ("export", tmp_path / "runs", "--client", "client-1", "--out"), own.read_bytes()
    sentence(cli(*words, own), "seed-3/model.safetensors is the run's own: take another --out.")
    sentence(cli(*words, tmp_path), f"{tmp_path} is a folder: name a file.")
    assert own.read_bytes() == before


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = run(seeds="0,1", target=0.99)
    assert ended.code == 0 and "over 2 seeds" in ended.out and "No run reached 99 %" in ended.out
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_compare_makes_the_reference_rows(tmp_path, monkeypatch):
    draw_no_page_of_one_run(monkeypatch)
    assert run(algorithm="scaffold", out=tmp_path / "one", absent=0.5).code == 0
    ended = cli("compare", tmp_path / "one", "--target", "0.1")
    assert ended.code == 0 and (tmp_path / "report.html").is_file()
    assert all(name in ended.out for name in ("scaffold", "centralized", "local", "To a global accuracy of 10 %"))
    made = sorted(
        path.name.rpartition("-")[0] for path in tmp_path.iterdir() if path.name not in ("one", "report.html")
    )
    assert made == ["centralized", "local"]
    centralized, local = (next(tmp_path.glob(f"{name}-*")) for name in ("centralized", "local"))
    assert metrics(centralized)[0]["steps"] == 6 * 2  # the whole cohort's work
    assert metrics(local)[0]["steps"] == 6 * 2 and metrics(local)[-1]["numbers_up"] == 0
    before = (centralized / "metrics.jsonl").stat().st_mtime_ns
    assert "centralized" in cli("compare", tmp_path / "one").out  # made once
    assert (centralized / "metrics.jsonl").stat().st_mtime_ns == before
    assert "centralized" not in cli("compare", tmp_path / "one", "--no-references").out


@pytest.mark.slow
def test_report_of_several(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(report, "write_report", lambda _, out, *rest: Path(out))
        for name in ("fedavg", "scaffold"):
            assert run(algorithm=name, out=tmp_path / name, seed=1).code == 0
    ended = cli("report", "fedavg", "scaffold", "--out", "pages/both.html")
    assert ended.code == 0 and ended.out.strip() == "pages/both.html"
    page = Path("pages/both.html").read_text()
    assert "fedavg" in page and "scaffold" in page and "http://" not in page.replace("http://www.w3.org", "")


def test_export(tmp_path, no_report):
    folder = tmp_path / "run"
    assert run(algorithm="fedavg_p", model="mlp(hidden=[8])", out=folder, unseen=1).code == 0
    log = (folder / "metrics.jsonl").read_bytes()
    states = {}
    for client in (None, "client-0", "client-1", "client-5"):
        out = tmp_path / f"{client}.safetensors"
        assert cli("export", folder, "--out", out, *(["--client", client] if client else [])).code == 0
        states[client] = load_file(out)
        mlp((1, 8, 8), 10, hidden=[8]).load_state_dict(states[client])
    assert (folder / "model.safetensors").read_bytes() == (tmp_path / "None.safetensors").read_bytes()
    assert all(torch.equal(states[None]["fc1.weight"], state["fc1.weight"]) for state in states.values())  # shared
    assert not torch.equal(states["client-0"]["head.weight"], states["client-1"]["head.weight"])  # its own
    mean = sum(load_all(folder, tmp_path)) / 5
    assert torch.allclose(states[None]["head.weight"], mean, atol=1e-6)
    assert torch.equal(states["client-5"]["head.weight"], states[None]["head.weight"])  # never trained
    assert (folder / "metrics.jsonl").read_bytes() == log
    ended = cli("export", folder, "--out", tmp_path / "x", "--client", "client-9")
    assert ended.code == 2 and "no client has the name 'client-9'; did you mean 'client-5'" in ended.err


AVERAGE = "this model is the average of clients' models, which the server does not have"


@pytest.mark.parametrize(
    ("algorithm", "of_all", "of_one"),
    [
        ("fedavg", "", ""),
        ("fedavg_p", AVERAGE, ""),
        ("class_mask", "", "ClassMask"),
        ("local + knn_per", AVERAGE, "Neighbors"),
        ("pfedhn", "this model is what the server makes clients' models of", ""),
    ],
)
def test_an_exported_model_that_does_not_predict_as_reported_says_so(algorithm, of_all, of_one, tmp_path, no_report):
    assert run(algorithm=algorithm, model="mlp(hidden=[8])", out=tmp_path / "run", rounds=1, steps=1).code == 0
    for client, said in ((None, of_all), ("client-1", of_one)):
        say_once.cache_clear()  # as at the beginning of a process
        ended = cli("export", tmp_path / "run", "--out", tmp_path / "x", *(["--client", client] if client else []))
        assert ended.code == 0 and ended.out == f"{tmp_path / 'x'}\n" and ended.err.count("\n") == bool(said)
        assert said in ended.err
    if of_one:
        x, y = np.random.default_rng(0).random((12, 8, 8), np.float32), np.arange(12) % 3
        np.savez(tmp_path / "new.npz", x_train=x, y_train=y)
        served = cli("personalize", tmp_path / "run", "--data", tmp_path / "new.npz", "--out", tmp_path / "new")
        words = f"{of_one}, at prediction, needs the client's samples beside the file"
        assert words in served.out and words in ended.err


def load_all(folder: Path, scratch: Path) -> list[torch.Tensor]:
    out = scratch / "each.safetensors"
    for client in range(5):
        assert cli("export", folder, "--out", out, "--client", f"client-{client}").code == 0
        yield load_file(out)["head.weight"]


def test_export_of_a_run_that_has_not_ended_does_not_go_on(tmp_path, no_report, monkeypatch):
    real, count = files.atomic_write, 0

    def stop(path: Path, data: bytes) -> None:
        nonlocal count
        count += path.name.startswith("round-")
        if count > 2:
            raise KeyboardInterrupt
        real(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(files, "atomic_write", stop)
        ended = run(out=tmp_path / "run", rounds=9)
    assert ended.code == 130 and "apiece resume" in ended.err and "Traceback" not in ended.err
    log = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    assert cli("export", tmp_path / "run", "--out", tmp_path / "model.safetensors").code == 0
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == log  # the round after the last checkpoint among it
    assert cli("resume", tmp_path / "run").code == 0 and len(metrics(tmp_path / "run")) == 9
    assert (tmp_path / "run" / "model.safetensors").read_bytes() != (tmp_path / "model.safetensors").read_bytes()


def test_tensorboard(tmp_path, no_report):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert run("--tensorboard", out=tmp_path / "run").code == 0
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    accuracies = [event.value for event in events.Scalars("global_accuracy")]
    assert np.allclose(accuracies, [info["global_accuracy"] for info in metrics(tmp_path / "run")])
    assert "consensus/head" in events.Tags()["scalars"]
    assert run("--tensorboard").code == 2  # it wants a folder


def test_a_closed_pipe_is_no_error():
    words = f"{sys.executable} -m apiece data --json | true"
    ended = subprocess.run(["sh", "-c", words], capture_output=True, text=True, env=os.environ)
    assert not ended.stderr


@pytest.mark.slow
def test_an_output_without_the_letters_of_a_table_has_others_in_their_place(tmp_path):
    write(tmp_path / "runs" / "seed-0", seed=0)
    write(tmp_path / "runs" / "seed-1", seed=1)
    words = [sys.executable, "-m", "apiece", "compare", tmp_path / "runs", "--no-references"]
    told = subprocess.run(words, capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert told.returncode == 0 and b" ? standard deviation" in told.stdout


def test_ctrl_c_while_all_is_imported_has_the_code_of_later_ones(monkeypatch, capsys):
    monkeypatch.setattr("os._exit", sys.exit)
    monkeypatch.setitem(sys.modules, "apiece.cli", SimpleNamespace(main=interrupted_at_once))
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 130 and capsys.readouterr().err == "apiece: interrupted.\n"


@pytest.mark.slow
def test_compare_makes_no_reference_rows_for_a_run_that_was_edited(tmp_path, no_report):
    """They would have settings that the run never had."""
    assert run(out=tmp_path / "one").code == 0
    file = tmp_path / "one" / "run.toml"
    file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith("rounds =")))
    sentence(cli("compare", tmp_path / "one"), f"{file} has other settings than its run began with")
    assert cli("compare", tmp_path / "one", "--no-references").code == 0


def test_compare_says_what_it_trains_first(tmp_path, monkeypatch):
    """Where, for how many rounds and about how long; of what is there already, nothing."""
    draw_no_page_of_one_run(monkeypatch)
    assert run(algorithm="scaffold", out=tmp_path / "one").code == 0
    log = tmp_path / "one" / "metrics.jsonl"
    records = [info | {"seconds": 100.0} for info in metrics(tmp_path / "one")]
    log.write_text("".join(json.dumps(info) + "\n" for info in records))
    ended = cli("compare", tmp_path / "one")
    folders = [str(next(tmp_path.glob(f"{name}-*"))) for name in ("centralized", "local")]
    assert (
        "reference rows are trained first, 3 rounds each, about 10 minutes of training in all, into "
        f"{', '.join(folders)}"
        in ended.err
    )
    assert "--no-references leaves them out" in ended.err
    assert "reference rows" not in cli("compare", tmp_path / "one").err
    assert "reference rows" not in cli("compare", tmp_path / "one", "--no-references").err


@pytest.mark.slow
def test_an_interruption_says_how_to_go_on(tmp_path, monkeypatch):
    draw_no_page_of_one_run(monkeypatch)
    assert run(algorithm="scaffold", out=tmp_path / "one").code == 0
    save = saved.save

    def interrupted(*arguments):
        save(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(saved, "save", interrupted)
    ended = cli("compare", tmp_path / "one")
    (folder,) = tmp_path.glob("centralized-*")
    said = f"apiece: interrupted; `apiece resume {folder}`, or the same comparison again, continues it.\n"
    assert ended.code == 130 and ended.err.endswith(said)
    assert run(out=tmp_path / "two").err.endswith(f"; `apiece resume {tmp_path / 'two'}` continues the run.\n")
    assert run(out=tmp_path / "all", seeds="0,1").err.endswith(
        f"; `apiece resume {tmp_path / 'all'}` continues the run.\n"
    )
    words = [word for key, value in TINY.items() for word in (f"--{key}", value)]
    grid = cli("grid", "--rows", "fedavg", "--columns", "nothing", "--out", tmp_path / "grid", *words)
    assert grid.err.endswith("; the same grid again continues it.\n")
    monkeypatch.setattr(run_module, "_round", interrupted_at_once)
    assert run().err == "apiece: interrupted; nothing was saved, as no --out was given.\n"


def interrupted_at_once(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("scale, column", [(1e6, 2), (-1e5, 2), (1.0, None)])
def test_features_that_were_not_scaled_are_hinted_at_once(tmp_path, scale, column):
    say_once.cache_clear()
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3
    x[7, 1] = scale * 1.5
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    ended = run(data=tmp_path / "own.npz", seeds="0,1", lr=1e-16)
    said = [line for line in ended.err.splitlines() if "standardize" in line]
    assert ended.code == 0 and len(said) == (column is not None)
    assert all(f"as large as {abs(scale) * 1.5:.3g} (column {column} of 4)" in line for line in said)


@pytest.mark.parametrize("shell, has", [("bash", "complete -F"), ("zsh", "#compdef apiece")])
def test_a_shell_gets_its_completion(shell, has, tmp_path):
    ended = cli("completion", shell)
    assert ended.code == 0 and has in ended.out and "--learning-rate" not in ended.out
    assert all(word in ended.out for word in ("personalize", "--cohort", "--log-format"))
    if shell == "bash":
        (tmp_path / "it").write_text(ended.out)
        assert subprocess.run(["bash", "-n", tmp_path / "it"], capture_output=True).stderr == b""


def test_the_module_is_the_command():
    """Its usage has the command's name, and its exit code is the command's."""
    words = [sys.executable, "-m", "apiece"]
    told = subprocess.run([*words, "--help"], capture_output=True, text=True)
    assert told.returncode == 0 and told.stdout.startswith("usage: apiece [-h]") and "Exit codes" in told.stdout
    closed = subprocess.run(f"{sys.executable} -m apiece data >&-", shell=True, capture_output=True, text=True)
    assert closed.returncode == 0 and not closed.stderr
    wrong = subprocess.run([*words, "run", "--rounds", "0"], capture_output=True, text=True)
    assert wrong.returncode == 2 and wrong.stderr == cli("run", "--rounds", "0").err != ""


def test_tables_as_json(tmp_path, no_report):
    assert run(out=tmp_path / "one", target=0.2, unseen=1).code == 0
    told = json.loads(cli("compare", tmp_path / "one", "--no-references", "--json", "--target", "0.2").out)
    (row,) = told["rows"]
    last = metrics(tmp_path / "one")[-1]
    assert row["name"] == "fedavg" and row["seeds"] == [0] and row["folders"] == [str(tmp_path / "one")]
    assert row["numbers"]["global_accuracy"] == {"mean": last["global_accuracy"], "sd": 0.0, "seeds": 1, "best": False}
    assert row["numbers"]["bytes"]["mean"] == last["bytes_up"] + last["bytes_down"]
    assert row["to_target"]["rounds"]["mean"] <= 3
    x, y = np.zeros((4, 8, 8), np.float32), np.arange(4)
    np.savez(tmp_path / "client.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    given = [tmp_path / "one", "--data", tmp_path / "client.npz", "--out", tmp_path / "its.safetensors"]
    served = json.loads(cli("personalize", *given, "--json").out)
    assert served["down"] > 0 and served["samples"] == 4 and 0 <= served["values"]["accuracy"] <= 1
    cards = json.loads(cli("reproduce", "--json", "--out", tmp_path).out)
    assert {"fedals-table2", "fedinit-table9"} <= {card["name"] for card in cards} and not cards[0]["scales"]
    sentence(cli("reproduce", "fedals-table2", "--json"), "--json lists the cards")


@pytest.mark.slow
def test_a_comparison_says_that_the_data_differ(tmp_path):
    for name, split in {"one": "iid", "two": "dirichlet(1)"}.items():
        assert run(out=tmp_path / name, split=split, algorithm="fedavg" if name == "one" else "scaffold").code == 0
    ended = cli("compare", tmp_path / "one", tmp_path / "two", "--no-references")
    said = "hese runs differ in split: a difference in their numbers is not the algorithm's."
    assert said in ended.err and said in " ".join(ended.out.split())
    figure = cli("figure", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "both.svg")
    assert figure.code == 0 and said in figure.err
    assert cli("report", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "both.html").code == 0
    assert said.replace("'", "&#39;") in (tmp_path / "both.html").read_text()
    alone = cli("compare", tmp_path / "one", "--no-references")
    assert "differ in" not in alone.err + alone.out


@pytest.mark.parametrize(
    "words, parts",
    [
        (["runn"], ["unknown command 'runn'", "did you mean 'run'?"]),
        (["run", "--lr", "abc"], ["--lr: 'abc' is not a number; it takes --lr FLOAT.", "`apiece run --help`"]),
        (["run", "--clients", "2.5"], ["--clients: '2.5' is not a whole number; it takes --clients INT."]),
        (["run", "--seeds", "0,a"], ["--seeds: 'a' is not a whole number; it takes --seeds INT,INT,..."]),
        (["run", "fedavgg"], ["nothing takes 'fedavgg': a value stands behind its flag", "as in --algorithm"]),
        (["run", "--algorithm", "fedavg", "+", "fedcm"], ["nothing takes '+ fedcm'", "in quotes if it has spaces"]),
        (["run", "--seed", "0", "1", "2"], ["nothing takes '1 2'", "and several seeds are --seeds 0,1,2."]),
        (["data", "iid"], ["nothing takes 'iid'"]),
        (["run", "--step", "3"], ["Unrecognized options: --step, 3; did you mean --steps?", "`apiece run --help`"]),
        (["resume", "runs/k", "--lr", "1"], ["takes no --lr: a run keeps its settings", "runs/k/run.toml"]),
        (["report", "runs", "--rounds", "3"], ["`apiece report` takes no --rounds. `apiece report --help`"]),
        (["run", "--split", "dirichlet(0.1"], ["split='dirichlet(0.1': at character 14: expected"]),
        (["run", "--optimizer", "adm"], ["did you mean 'adam' or 'adamw'? Allowed: adam, adamw, sgd."]),
        (["figure", "runs"], ["`apiece figure` needs --out. `apiece figure --help` says what it is."]),
        (["personalize", "runs"], ["`apiece personalize` needs --data and --out.", "says what they are."]),
        (["algorithms", "--jsn"], ["did you mean --json?"]),
        (["run", "--config", "a.toml", "--config=b.toml"], ["--config is given more than once", "write one file"]),
        (["run", "--algorithm", ""], ["algorithm='': expected a name"]),
        (["grid", "--rows", "fedavg", "--columns", "nothing", "--json", "--log-format", "json"],
         ["--json and --log-format json are both given: leave one out."]),
        (["verify", "fedinit-table9", "--cell", "1", "--device", "banana"], ["there is no device 'banana'"]),
        (["data", "--foo"], ["Unrecognized options: --foo. `apiece data --help` has all flags"]),
        (["run", "--optimizer-state", "x"], ["'x'", "'fresh', 'kept'"]),
        (["--foo"], ["Unrecognized options: --foo. `apiece --help` has all flags"]),
    ],
)
def test_a_line_that_cannot_be_parsed_gets_one_sentence_and_no_box(words, parts):
    sentence(cli(*words), *parts)
