"""What a run says before its first round: what it read, and what in a user's data looks mistaken."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from apiece import Config, Federation, UserError, federate
from apiece.config.hints import hints, read
from apiece.config.located import counted
from apiece.config.settings import AUTO
from apiece.config.tables import from_toml
from apiece.data.arrays import held_out
from apiece.experiment import folders

WORDS = np.array(["flu", "cold", "none"])
SMALL = {"rounds": 1, "steps": 1, "lift": "sequential", "progress": True}


@pytest.fixture(autouse=True)
def _afresh():
    """Every hint is said once in the life of a process."""
    folders.say_once.cache_clear()


def table(path, owners, column="hospital", seed=0):
    """A table whose rows belong to these owners."""
    rng = np.random.default_rng(seed)
    rows = [f"{owner},{rng.random()},{WORDS[i % 3]}" for i, owner in enumerate(owners)]
    path.write_text("\n".join([f"{column},age,ill", *rows]))
    return str(path)


def said(capsys, **settings):
    result = federate(**SMALL | settings)
    return result, capsys.readouterr().err


def test_what_was_read_is_said_with_the_numbers_of_the_labels(tmp_path, capsys):
    path = table(tmp_path / "own.csv", ["a", "b"] * 30)
    told = said(capsys, data=path, target_column="ill", client_column="hospital")[1]
    assert "own: 48 training and 12 held-out test samples of shape 1, 3 classes (cold is 0, flu is 1, none" in told
    assert "is 2); 2 clients by the split natural." in told
    assert "held-out" not in said(capsys, data="digits", clients=3)[1]
    x, y = torch.randn(30, 4), torch.arange(30) % 3
    few = {"data": (x, y), "clients": 3}
    assert "data: 24 training and 6 held-out test samples of shape 4, 3 classes; 3 clients" in said(capsys, **few)[1]
    assert "your data" not in said(capsys, **few, progress=False)[1]


def test_numbers_that_became_others_are_told_once(tmp_path, capsys, caplog):
    x, y = torch.randn(30, 4), torch.arange(30) % 3 + 1
    assert "of shape 4, 3 classes; 3 clients" in said(capsys, data=(x, y), clients=3)[1]
    assert caplog.text.count("the labels 1, 2, 3 are numbered 0 to 2") == 1
    (tmp_path / "own.jsonl").write_text("".join(f'{{"text": "t {i}", "label": {i % 2 + 1}}}\n' for i in range(30)))
    told = said(capsys, data=str(tmp_path / "own.jsonl"), model="opt(length=8, hidden=8, layers=1)", clients=3)[1]
    assert "own: 24 training and 6 held-out test samples of shape 8, 2 classes (1 is 0, 2 is 1); 3 cl" in told


def test_a_hospital_that_only_tests_is_told_and_is_no_clients_own(tmp_path, capsys):
    rows = [f"{'uvw'[i % 3]},{i % 7},{WORDS[i % 5 % 3]},{'test' if i % 3 == 2 else 'train'}" for i in range(60)]
    (tmp_path / "own.csv").write_text("\n".join(["hospital,age,ill,split", *rows]))
    columns = {"target_column": "ill", "client_column": "hospital"}
    run, told = said(capsys, data=str(tmp_path / "own.csv"), **columns)
    only = "owners who have test samples (20) and none to train on, which count in the global metrics alone: 'w'."
    assert only in told
    assert "no test sample, which are in no mean over clients: 'u', 'v' (of 2 clients)." in told
    assert run.accuracy == {} and 0 <= run.metrics[-1]["global_accuracy"] <= 1
    (tmp_path / "own.csv").write_text("\n".join(["hospital,age,ill,split", *rows, "u,3,flu,test"]))
    folders.say_once.cache_clear()
    run, told = said(capsys, data=str(tmp_path / "own.csv"), **columns)
    assert only in told and [*run.accuracy] == ["u"]
    folders.say_once.cache_clear()
    assert only not in said(capsys, data=str(tmp_path / "own.csv"), **columns, split="iid", clients=2)[1]


def test_a_column_that_numbers_the_rows_is_told(tmp_path, capsys, caplog):
    rows = [f"{i},{i % 7},{WORDS[i % 3]}" for i in range(60)]
    (tmp_path / "own.csv").write_text("\n".join([",age,ill", *rows]))
    settings = {"data": str(tmp_path / "own.csv"), "target_column": "ill", "clients": 3, "split": "iid"}
    said(capsys, **settings, prepare="onehot")
    assert "Unnamed: 0 has another whole number in each row: if it numbers the rows, leave it out" in caplog.text
    caplog.clear()
    said(capsys, **settings, input=["Unnamed: 0", "age"])  # who names the columns has decided
    assert "has another whole number" not in caplog.text


def test_rows_that_were_copied_are_told(tmp_path, capsys):
    rows = [f"{i / 7},{WORDS[i % 3]}" for i in range(40)]
    settings = {"data": str(tmp_path / "own.csv"), "target_column": "ill", "clients": 3, "split": "iid"}
    (tmp_path / "own.csv").write_text("\n".join(["age,ill", *rows, *rows]))
    assert "of the 16 test samples are among the training samples, too: if rows were" in said(capsys, **settings)[1]
    (tmp_path / "own.csv").write_text("\n".join(["age,ill", *rows, *rows[:9]]))
    assert "are among the training samples" not in said(capsys, **settings)[1]


def test_a_column_of_names_that_became_as_many_columns_is_told(tmp_path, capsys):
    rows = [f"patient {i},{i % 7},{WORDS[i % 3]}" for i in range(60)]
    (tmp_path / "own.csv").write_text("\n".join(["who,age,ill", *rows]))
    settings = {"data": str(tmp_path / "own.csv"), "target_column": "ill", "clients": 3, "split": "iid"}
    with pytest.raises(UserError, match="different texts in 48 training rows"):
        said(capsys, **settings)
    told = said(capsys, **settings, prepare="onehot")[1]
    assert "column 'who' became 48 columns, one for each text" in told and '--input a "b c"' in told
    assert "one for each text" not in said(capsys, **settings, prepare="onehot", input=["age"])[1]


def test_owners_of_one_sample_each_are_refused_and_one_with_two_is_tested(tmp_path, capsys):
    settings = {"target_column": "ill", "client_column": "hospital"}
    path = table(tmp_path / "own.csv", list(range(40)))
    with pytest.raises(UserError, match="each client that the data name has one sample alone"):
        said(capsys, data=path, **settings)
    run, _ = said(capsys, data=table(tmp_path / "two.csv", [*range(40), 0]), **settings)
    place = run.experiment.federation
    assert [place.test_size(i) for i, name in enumerate(place.names) if name == "0"] == [1]
    assert said(capsys, data=path, **settings, split="iid", clients=3)[0].metrics  # by class, where owners are not used


def test_a_column_of_owners_decides_the_split_unless_another_is_named(tmp_path, capsys):
    path = table(tmp_path / "own.csv", ["a", "b", "c"] * 30)
    columns = {"data": path, "target_column": "ill", "client_column": "hospital"}
    run, told = said(capsys, **columns, out=str(tmp_path / "run"))
    assert sorted(run.experiment.federation.names) == ["a", "b", "c"] and "does not use" not in told
    assert from_toml(tmp_path / "run" / "run.toml").split == "natural"
    run, told = said(capsys, **columns, split="iid", clients=4)
    assert len(run.experiment.federation.names) == 4 and "split=iid does not use that: split=natural does" in told
    named = table(tmp_path / "named.csv", ["a", "b"] * 30, column="client")
    assert "split=dirichlet(0.1) does not use that" in said(capsys, data=named, target_column="ill", clients=3)[1]
    assert Config().split == AUTO and counted(Config()).split == "dirichlet(0.1)"


def test_clients_with_one_sample_and_classes_of_one_client_are_named(tmp_path, capsys):
    path = table(tmp_path / "own.csv", ["a", "b"] * 30 + ["lone"])
    told = said(capsys, data=path, target_column="ill", client_column="hospital")[1]
    assert "clients with a single training sample: 'lone' (of 3 clients)." in told and "no other has" not in told
    x, y = torch.randn(90, 4), torch.arange(90) % 3
    apart = {f"client {k}": (x[y == k], y[y == k]) for k in range(3)}
    told = said(capsys, data=apart)[1]
    assert "classes of which one client alone has samples: 0, 1, 2 (of 3 classes)." in told
    both = {"one": (x[y < 2], y[y < 2]), "other": (x, y)}
    assert "classes of which client 'other' alone has samples: 2 (of 3 classes)." in said(capsys, data=both)[1]
    assert "the data have 2 clients, and 1 take part" in said(capsys, data=both, clients=1)[1]


def test_clients_with_few_test_samples_are_named_with_how_many(tmp_path, capsys):
    x, y = torch.randn(90, 4), torch.arange(90) % 3
    sites = {"Jena": (x, y, x[:10], y[:10]), "Fulda": (x, y, x[:2], y[:2]), "Gotha": (x, y, x[:9], y[:9])}
    few = "clients with fewer than 10 test samples, whose own accuracies are coarse: "
    assert f"{few}'Fulda' (2), 'Gotha' (9) (of 3 clients)." in said(capsys, data=sites)[1]
    assert "coarse" not in said(capsys, data={"Jena": sites["Jena"]})[1]
    sizes = {"a": 20} | {f"b{i}": 3 for i in range(9)}
    real = {name: (x, x[:, 0], x[:tests], x[:tests, 0]) for name, tests in sizes.items()}
    told = said(capsys, data=real)[1]
    assert "whose own metrics are coarse: 'b0' (3)," in told and "'b7' (3), ... (of 10 clients)" in told
    assert "coarse" not in said(capsys, data=(x, y), clients=9)[1]  # a split that divides samples, not their owners
    told = said(capsys, data={"Jena": (x, y), "Gera": (x[:1], y[:1])})[1]
    assert "clients with no test sample, which are in no mean over clients: 'Gera' (of 2 clients)." in told


def test_a_word_among_numbers_and_an_owner_who_is_missing_are_named(tmp_path):
    rows = [f"{'n/a?' if i == 1 else i / 7},{i},{'' if i == 5 else 'ab'[i % 2]},{WORDS[i % 3]}" for i in range(90)]
    (tmp_path / "own.csv").write_text("\n".join(["dose,row,site,ill", *rows]))
    settings = {"data": str(tmp_path / "own.csv"), "target_column": "ill", "clients": 2, "split": "iid"}
    with pytest.raises(UserError, match=r"'dose': it is read as text, .*: mend ('n/a\?'|that of a test row), or"):
        federate(**SMALL | settings, input=["dose"])
    with pytest.raises(UserError, match=r"site, which names .* missing in 1 of 90 rows, first in row 5 \(counted"):
        federate(**SMALL | settings, input=["row"], client_column="site")
    texts = [f"2024-{i},p{i},{WORDS[i % 3]}" for i in range(90)]
    (tmp_path / "own.csv").write_text("\n".join(["day,id,ill", *texts]))
    with pytest.raises(UserError, match=r"column 'day': it has .* free text have \(so have 'id'\): make"):
        federate(**SMALL | settings)


@pytest.mark.parametrize("testing", [False, True])  # words of samples that are held out are not counted
def test_a_column_that_one_word_made_text_is_named(testing, tmp_path, capsys):
    ill, owners = WORDS[np.arange(60) % 3], np.array(list("ab"))[np.arange(60) % 2]
    place = np.flatnonzero(held_out(ill, 0.2, owners) == testing)[0]
    rows = [f"{owners[i]},{'sixty' if i == place else i},{ill[i]}" for i in range(60)]
    (tmp_path / "odd.csv").write_text("\n".join(["hospital,age,ill", *rows]))
    columns = {"target_column": "ill", "client_column": "hospital", "prepare": "onehot"}
    told = said(capsys, data=str(tmp_path / "odd.csv"), **columns)[1]
    assert "1 column of text (age) became" in told
    why = "since 'sixty' among its numbers is none:"
    if testing:
        why = "but all its training values are numbers: if numbers are meant,"
    assert f"column 'age' was read as text, {why} mend" in told


def test_a_number_that_is_none_is_named_and_so_are_its_row_and_its_client(tmp_path, capsys):
    columns = {"target_column": "ill", "client_column": "hospital"}
    rows = [*(f"a,{i},red,{WORDS[i % 3]}" for i in range(50)), "b,inf,blue,flu", "b,2,red,none"]
    (tmp_path / "inf.csv").write_text("\n".join(["hospital,age,ward,ill", *rows]))
    with pytest.raises(UserError, match=r"column 'age': row 50 \(counted from 0\)"):
        federate(data=str(tmp_path / "inf.csv"), **columns)
    x, y = torch.randn(30, 4), torch.arange(30) % 3
    broken = x.clone()
    broken[5] = float("nan")
    with pytest.raises(UserError, match=r"client 'two': row 5 \(counted from 0\)"):
        federate(data={"one": (x, y), "two": (broken, y)})


def test_numbers_that_are_not_near_one_are_named_with_what_mends_them(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = [f"{age:.1f},{marker:.2f},{age > 50}" for age, marker in zip(rng.normal(50, 9, 60), rng.random(60))]
    (tmp_path / "own.csv").write_text("\n".join(["age,marker,ill", *rows]))
    table = {"data": str(tmp_path / "own.csv"), "target_column": "ill", "clients": 3, "split": "iid"}
    told = said(capsys, **table)[1]
    assert "(column 1 of 2), on which training may diverge, or learn nothing: --prepare onehot standardizes" in told
    assert "learn nothing" not in said(capsys, **table, prepare="onehot")[1]
    x, y = 20 * torch.ones(30, 4), torch.arange(30) % 3
    assert "as large as 20 (column 1 of 4)" in said(capsys, data=(x, y), clients=3)[1]
    assert "learn nothing" not in said(capsys, data=(x / 20, y), clients=3)[1]


def test_levels_of_images_that_are_no_whole_numbers_of_8_bits_are_named(capsys):
    levels, y = np.random.default_rng(0).integers(0, 256, (60, 16, 16)), np.arange(60) % 3
    images = SMALL | {"model": "cnn", "clients": 3, "lr": 0.0}
    told = said(capsys, **images, data=(levels.astype(np.float32), y))[1]
    assert "the inputs have numbers as large as 255, on which" in told and "as in (x - 1" in told
    deep = (257 * levels).astype(np.uint16)[:, None]
    assert "the inputs have numbers as large as 6.55e+04, on which" in said(capsys, **images, data=(deep, y))[1]
    for small in (levels.astype(np.uint8), levels / 255):
        assert "learn nothing" not in said(capsys, **images, data=(small, y))[1]


def test_classes_and_clients_that_are_spelled_in_two_ways_are_named(capsys):
    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.array(["ill", "well", "Ill"] * 20)
    told = said(capsys, data=(x, y), clients=3)[1]
    assert "'Ill' and 'ill' are 2 classes: if they are one, spell them alike." in told
    owners = {name: (x[i::3], y[i::3] == "well") for i, name in enumerate(("north", "south", "South "))}
    assert "'South ' and 'south' are 2 clients: if they are one" in said(capsys, data=owners)[1]
    assert "spell them" not in said(capsys, data=(x, np.char.lower(y)), clients=3)[1]


def test_ready_clients_have_no_data_set_to_be_told():
    x, y = torch.randn(60, 4), torch.arange(60) % 3
    rows = [torch.arange(0, 30), torch.arange(30, 60)]
    ready = federate(torch.nn.Linear(4, 5), clients=Federation((x, y), (x, y), rows, rows, ["a", "b"]), **SMALL)
    assert read(ready.experiment) == "" and hints(ready.experiment) == []


def test_a_piece_says_that_few_clients_a_round_may_be_its_end(capsys):
    few = {"data": "digits", "clients": 20, "progress": False}
    told = said(capsys, **few, cohort=1, algorithm="fedprox + fedinit(beta=0.1)")[1]
    assert "relaxed_init(beta=0.1) may make the server's model run away, where a round asks 5 % of the clients" in told
    assert "run away" not in said(capsys, **few, cohort=2, algorithm="fedinit(beta=0.1)")[1]
    for alone in ("local", "pefll"):  # the server has no vector that all clients train
        assert "run away" not in said(capsys, **few, cohort=1, algorithm=f"{alone} + relaxed_init(beta=0.2)")[1]
    told = said(capsys, **few, algorithm="fedadam(lr=0.1, tau=0.01) + relaxed_init(beta=0.12)")[1]
    assert "a round asks 100 % of the clients" in told


def test_a_server_of_the_programs_own_is_not_tried(capsys):
    class Own:
        def __init__(self):
            self.scale, self.steps = torch.linspace(0.5, 1, 650), 0

        def init(self, theta):
            return ()

        def step(self, gradient, theta, state, lr=1.0):
            self.steps += 1
            return theta - lr * self.scale * gradient, state

    server, few = Own(), {"data": "digits", "model": "softmax_regression", "clients": 20, "cohort": 1}
    assert "run away" in said(capsys, **few, algorithm="fedinit", server=server)[1] and server.steps == 1
