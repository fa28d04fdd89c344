"""Text: rows of tokens from a file, an OPT whose padding is nowhere seen, and the engine on both."""

from __future__ import annotations

import gzip
import json
import os
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.helpers import Given, federate, gap, run
from support.recipes import Stop, stopping
from torch import nn

from apiece.algebra.optim import AdamW
from apiece.cli import main
from apiece.config.assemble import assemble, chosen_algorithm
from apiece.config.model import make_model
from apiece.config.settings import Config
from apiece.config.splitting import make_split
from apiece.data.federation import Federation, federation
from apiece.data.ownership import Natural
from apiece.data.partitions import Shards
from apiece.data.sources import load
from apiece.data.texts import from_jsonl
from apiece.data.tokens import IGNORED, Bytes, Reading
from apiece.errors import UserError
from apiece.experiment.launch import federate as program
from apiece.experiment.launch import resume
from apiece.experiment.personalize import personalize
from apiece.language import algorithms as named
from apiece.lifts.lift import Sequential, Threaded, Vectorized
from apiece.measure import scoring
from apiece.measure.scoring import score
from apiece.networks import opt as text_models
from apiece.vector.space import Space
from apiece.vector.task import Task

transformers = pytest.importorskip("transformers")

LENGTH, CLASSES = 12, 3
SIZE = {"length": LENGTH, "hidden": 16, "layers": 2, "heads": 2}
KINDS = ("opt", "opt_lm")
WORDS = [("red", "blue", "green"), ("cat", "dog", "hen"), ("sun", "moon", "fog")]
SMALL = {"split": "natural", "clients": 4, "rounds": 3, "steps": "2", "batch": 4, "lr": 0.01, "optimizer": "adamw",
    "cohort": 0.5}  # fmt: skip


def write(path: Path, records: list[dict]) -> Path:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    return path


def lines(count: int = 96) -> list[dict]:
    """Texts of one to four words, with an intent and one of four domains."""
    rng = np.random.Generator(np.random.Philox(3))
    return [
        {
            "text": " ".join(rng.choice(WORDS[i % 3], size=rng.integers(1, 5))),
            "intent": ("color", "animal", "sky")[i % 3],
            "domain": "abcd"[i % 4],
        }
        for i in range(count)
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "small.jsonl", lines())


def model(kind: str, length: int = LENGTH, folder: str | None = None, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        size = {"folder": folder} if folder else SIZE | {"length": length}
        return getattr(text_models, kind)(**size).module((length,), CLASSES)


def batch(kind: str, lengths=(12, 7, 3, 9), width: int = LENGTH, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of random tokens of these lengths, padded to `width`, and what is to be predicted."""
    rng = np.random.Generator(np.random.Philox(seed))
    x, y = torch.zeros(len(lengths), width, dtype=torch.int64), torch.full((len(lengths), width), IGNORED)
    for i, length in enumerate(lengths):
        tokens = torch.from_numpy(rng.integers(1, 258, size=length + 1))
        x[i, :length], y[i, :length] = tokens[:-1], tokens[1:]
    return (x, y) if kind == "opt_lm" else (x, torch.from_numpy(rng.integers(0, CLASSES, size=len(lengths))))


def clients(kind: str, sizes=(9, 5, 12)) -> Federation:
    rng = np.random.Generator(np.random.Philox(5))
    parts = [batch(kind, rng.integers(2, LENGTH + 1, size=n), seed=i) for i, n in enumerate(sizes)]
    pool = (torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]))
    rows = list(torch.arange(sum(sizes)).split(list(sizes)))
    return Federation(pool, pool, rows, rows, [f"c{i}" for i in range(len(sizes))])


def batches(rounds: int, steps: int, sizes=(9, 5, 12), size: int = 4) -> Given:
    rng = np.random.Generator(np.random.Philox(6))
    table = {
        (t, f"c{i}"): torch.from_numpy(np.stack([rng.choice(n, size, replace=False) for _ in range(steps)]))
        for t in range(rounds)
        for i, n in enumerate(sizes)
    }
    return Given(table)


def loss_and_gradient(space: Space, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    theta = space.ravel().requires_grad_()
    value = Task(space).loss(space.training_outputs(theta, x, space.ravel_buffers())[0], y)
    return value.detach(), torch.autograd.grad(value, theta)[0]


# --- rows of tokens -------------------------------------------------------------------------------------------------
TEXTS = ["", "é", "abcdefghij", "to be, or not to be"]


def test_bytes_and_whole_texts():
    assert Bytes()(["é"]) == [[1, 0xC3 + 2, 0xA9 + 2, 1]]
    rows = Reading(length=6).whole(TEXTS)
    assert rows.x.tolist()[:2] == [[1, 1, 0, 0, 0, 0], [1, 197, 171, 1, 0, 0]]
    assert rows.x.shape == (4, 6) and rows.cut == 2 and rows.targets is None and rows.source.tolist() == [0, 1, 2, 3]
    with pytest.raises(UserError, match="length=0"):
        Reading(length=0)


@pytest.mark.parametrize("length", [1, 4, 21, 64])
def test_every_token_is_a_target_once(length):
    rows = Reading(length).windows(TEXTS)
    assert rows.targets is not None and rows.x.shape == rows.targets.shape == (len(rows.source), length)
    assert np.array_equal(rows.x == 0, rows.targets == IGNORED) and (rows.x[:, 0] != 0).all()
    for i, tokens in enumerate(Bytes()(TEXTS)):
        mine, real = rows.source == i, rows.x[rows.source == i] != 0
        assert rows.targets[mine][real].tolist() == tokens[1:] and rows.x[mine][real].tolist() == tokens[:-1]


# --- files ----------------------------------------------------------------------------------------------------------
def test_a_file_gives_texts_labels_and_owners(file, tmp_path, caplog):
    data = from_jsonl(file, Reading(LENGTH))
    assert data.text and data.classes == 3 and data.name == "small" and data.targets_train is None
    assert (len(data.x_train), len(data.x_test)) == (76, 20) and np.bincount(data.y_test).tolist() == [7, 8, 5]
    assert "have more than length=12 tokens" in caplog.text
    assert data.natural_train is not None and set(data.natural_train) == set("abcd")
    assert data.natural_test is not None
    for owner in "abcd":  # a fifth of each
        trained, tested = (int((part == owner).sum()) for part in (data.natural_train, data.natural_test))
        assert abs(tested - (trained + tested) * 20 / 96) < 1

    packed = tmp_path / "small.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert np.array_equal(load(str(packed)).x_train, load(str(file)).x_train)
    as_language = from_jsonl(file, Reading(LENGTH, predicts="next"))
    assert as_language.targets_train is not None and as_language.classes == 3
    assert len(as_language.y_train) == len(as_language.x_train) > 76  # windows bear their text's label


def test_fields_have_usual_names_and_others_where_given(tmp_path):
    parts, same = ("train", "test", "val"), {"hypothesis": "h", "genre": "g"}
    pairs = [same | {"premise": f"p{i}", "label": i % 3 - 1, "split": parts[i % 3]} for i in range(9)]
    data = from_jsonl(write(tmp_path / "pairs.jsonl", pairs), Reading(8))
    assert data.x_train.shape == (3, 8) and len(data.x_test) == 3 and data.classes == 2
    assert data.x_train[0].tolist() == [*Bytes()(["p0 h"])[0], 0, 0]
    own = [{"say": f"s{i}\u2028", "who": i % 2, "text": "-"} for i in range(10)]
    data = from_jsonl(write(tmp_path / "own.jsonl", own), text="say", client="who")
    assert data.natural_train is not None and data.targets_train is not None  # no label: a language model's
    assert np.array_equal(data.y_train, data.natural_train)  # whose a text is stands for its label


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("\n{", "line 2 is no JSON"),
        ("[1]", "no JSON object"),
        ('{"body": "x"}', "needs one named text"),
        ('{"text": "x", "label": 1}\n{"text": "y"}', "'label' is missing"),
        ('{"text": "x", "label": 1}\n{"text": "y", "label": NaN}', "'label' is missing"),
        ('{"text": "x", "split": "test"}', "0 lines to train on and 1 to test on"),
        ('{"text": "x", "client": 1}\n{"text": "y", "client": "1"}', "'1' names a client as a number and as a text"),
        (b"\xff\xfe", "cannot be read as text: .*; save it as UTF-8."),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, content, words):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=words):
        load(str(path))


def test_labels_that_are_not_there_are_said(tmp_path):
    path = write(tmp_path / "bare.jsonl", [{"text": str(i)} for i in range(9)])
    assert load(str(path)).classes == 1
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # as Windows marks UTF-8
    assert load(str(path)).classes == 1
    with pytest.raises(UserError, match="opt_lm"):
        load(str(path), reading=Reading(predicts="label"))
    with pytest.raises(UserError, match="no field 'tone'"):
        from_jsonl(path, label="tone")


def test_shards_by_genre(file):
    data = from_jsonl(file, Reading(LENGTH))
    split = make_split(data, Shards(1, by="natural"), 8, seed=0)
    owners = [set(data.natural_train[rows]) for rows in split.train]  # type: ignore[index]
    assert owners[:2] == [{"a"}, {"a"}] and owners[-1] == {"d"} and all(len(own) <= 2 for own in owners)
    for own, rows in zip(owners, split.test, strict=True):
        assert set(data.natural_test[rows]) <= own  # type: ignore[index]
    assert sorted(np.concatenate(split.test).tolist()) == list(range(20))
    with pytest.raises(UserError, match="by='gender'"):
        make_split(data, Shards(1, by="gender"), 4, seed=0)
    with pytest.raises(UserError, match="does not say whose"):
        make_split(load("digits"), Shards(1, by="natural"), 4, seed=0)


# --- the model ------------------------------------------------------------------------------------------------------
def count(tokens: int, length: int, width: int, layers: int) -> int:
    """(V + T + 2) H embeddings; a norm; L layers of four H x H, H x 4H and 4H x H, with biases, and two norms."""
    layer = 4 * (width * width + width) + (8 * width * width + 5 * width) + 2 * 2 * width
    return (tokens + length + 2) * width + 2 * width + layers * layer


def test_parameters_are_opts():
    assert count(50272, 2048, 768, 12) == 125_239_296  # OPT-125M, its output tied to its embeddings
    assert sum(p.numel() for p in model("opt_lm").parameters()) == count(258, 12, 16, 2) == 10_944
    assert Space(model("opt")).size == 10_944 + 3 * 16 and Space(model("opt_lm")).size == 10_944


def theirs(kind: str) -> nn.Module:
    """The same model as `transformers` runs it."""
    ours = model(kind)
    config = transformers.OPTConfig(**ours.model.config.to_dict())
    whole = getattr(transformers, type(ours).architecture)._from_config(config, attn_implementation="sdpa")
    assert whole.load_state_dict(ours.state_dict(), strict=True)
    return whole.double()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_those_of_transformers(kind):
    space, (x, _) = Space(model(kind), dtype=torch.float64), batch(kind)
    expected = theirs(kind)(input_ids=x, attention_mask=(x != 0).long()).logits.detach()
    ours = space.outputs(space.ravel(), x, space.ravel_buffers())
    real = x != 0 if kind == "opt_lm" else slice(None)
    assert gap(ours[real], expected[real]) < 1e-13
    features = space.features(space.ravel(), x, space.ravel_buffers())
    assert features.shape == (4, *((12,) if kind == "opt_lm" else ()), 16)
    assert gap(space.head(space.ravel(), features), ours) < 1e-14


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_neither_loss_nor_gradient(kind):
    space = Space(model(kind, 20), dtype=torch.float64)
    (x, y), longer = batch(kind), batch(kind, width=20)
    before = x.flip(1) == 0  # padding in front, where causality alone does not hide it
    front = torch.zeros_like(x).masked_scatter(~before, x[x != 0])
    shifted = torch.full_like(y, IGNORED).masked_scatter(~before, y[y != IGNORED]) if kind == "opt_lm" else y
    value, gradient = loss_and_gradient(space, x, y)
    for other in (longer, (front, shifted)):
        again = loss_and_gradient(space, *other)
        assert gap(value, again[0]) < 1e-12 and gap(gradient, again[1]) < 1e-12
    assert gradient.abs().max() > 1e-3


def test_the_loss_is_a_mean_over_tokens_and_not_over_rows_or_padding():
    space, (x, y) = Space(model("opt_lm"), dtype=torch.float64), batch("opt_lm")
    whole, gradient = loss_and_gradient(space, x, y)
    alone = [loss_and_gradient(space, x[i : i + 1], y[i : i + 1]) for i in range(4)]
    weights = torch.tensor([12, 7, 3, 9], dtype=torch.float64) / 31
    assert gap(whole, sum(w * value for w, (value, _) in zip(weights, alone, strict=True))) < 1e-12
    assert gap(gradient, sum(w * g for w, (_, g) in zip(weights, alone, strict=True))) < 1e-12


def test_measures_are_means_over_tokens_however_they_are_cut(monkeypatch):
    space, pool = Space(model("opt_lm"), dtype=torch.float64), clients("opt_lm").pool
    predict = lambda x: space.outputs(space.ravel(), x, space.ravel_buffers())  # noqa: E731
    outputs, y = predict(pool[0]), pool[1]
    real = y != IGNORED
    y[:, ::3] = torch.where(real[:, ::3], outputs[:, ::3].argmax(-1), IGNORED)  # some predictions are right
    right = (outputs.argmax(-1) == y)[real].double().mean()
    surprise = -outputs.log_softmax(-1)[real].gather(1, y[real][:, None]).mean()
    for tokens in (1, 40, 10_000):
        monkeypatch.setattr(scoring, "TOKENS", tokens)
        found = score(Task(space), predict, pool, torch.arange(len(y)))
        mean = found.of(Task(space).metrics)["accuracy"]
        assert mean == pytest.approx(float(right), rel=1e-12) and 0 < mean < 1
        assert found.loss == pytest.approx(float(surprise), rel=1e-12)


def test_layers_are_the_papers():
    names = [f"model.decoder.layers.{i}.self_attn.k_proj" for i in range(2)]
    space = Space(model("opt"))
    assert space.layers == ["model.decoder.embed_tokens", *names, "score"]
    embeddings = (258 + 14 + 2) * 16
    assert space.layer_index().bincount().tolist() == [embeddings, 3280, 3280, 48]
    assert space.select(1).sum() == embeddings and space.select("head").sum() == 48
    tied = Space(model("opt_lm"))  # the output's matrix is that of the tokens' embeddings, so these are the head's
    assert tied.layers == ["model.decoder.embed_positions", *names, "lm_head"]
    assert tied.layer_index().bincount().tolist() == [16 * 16, 3280, 3280, 258 * 16]
    assert tied.last == "lm_head" and tied.select("head").sum() == tied.select("lm_head").sum() == 258 * 16
    assert torch.equal(tied.select("body"), tied.select(3))


# --- training -------------------------------------------------------------------------------------------------------
def test_training_is_that_of_torch_and_transformers():
    """One client under AdamW: their model and torch's optimizer, the loss from its definition on the whole texts."""
    work, data, net = batches(2, 3, (9,)), clients("opt_lm", (9,)), theirs("opt_lm").train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for t in range(2):
        for rows in work.table[t, "c0"]:
            x, y = data.samples(0).batch(rows)
            optimizer.zero_grad()
            chances = net(input_ids=x, attention_mask=(x != 0).long()).logits.softmax(-1)
            said = [chances[i, t, y[i, t]].log() for i in range(len(x)) for t in range(LENGTH) if x[i, t] != 0]
            (-sum(said) / len(said)).backward()
            optimizer.step()
    federated = federate(named.fedavg(), model("opt_lm"), client=AdamW(), optimizer_state="kept")
    ours = run(federated, data, work, [(0,)] * 2, lr=0.01)
    assert gap(ours.last, federated.setup.task.space.ravel(net)) < 1e-12
    assert gap(ours.last, federated.setup.initial) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_fedals_is_fedavg_where_it_should_be(kind):
    """alpha = 1 bitwise; all layers slow, alpha rounds of K steps are one of alpha K, AdamW's state kept."""
    settings = {"client": AdamW(), "optimizer_state": "kept"}
    data, short = clients(kind), batches(4, 2)
    long = Given(
        {(t, c): torch.cat([short.table[2 * t, c], short.table[2 * t + 1, c]]) for t in (0, 1) for _, c in short.table}
    )
    everyone = [(0, 1, 2)] * 4

    def last(which, work, rounds):
        return run(federate(which, model(kind), **settings), data, work, everyone[:rounds], lr=0.01).last

    assert torch.equal(last(named.fedals(alpha=1), short, 4), last(named.fedavg(), short, 4))
    layers = len(Space(model(kind)).layers)
    assert gap(last(named.fedals(alpha=2, head=layers), short, 4), last(named.fedavg(), long, 2)) < 1e-12
    assert gap(last(named.fedals(alpha=2), short, 4), last(named.fedavg(), short, 4)) > 1e-3


@pytest.mark.parametrize(("kind", "head"), [("opt", 48), ("opt_lm", 258 * 16)])
def test_the_ledger_counts_the_body_once_in_alpha_rounds(kind, head):
    """As FedALS's Table 2: each client sends rounds (head + body / alpha) numbers, and receives as many."""
    ran = run(
        federate(named.fedals(alpha=3), model(kind), client=AdamW()), clients(kind), batches(6, 1), [(0, 1, 2)] * 6
    )
    up, down = (sum(getattr(a.traffic, f"parameters_{way}") for a in ran.answers) for way in ("up", "down"))
    body = Space(model(kind)).size - head
    assert up == down == 3 * (6 * head + 2 * body)


RICH = "fedals(alpha=2) + scaffold + relaxed_init(0.1)"


@pytest.mark.parametrize("kind", KINDS)
def test_lifts_change_nothing(kind):
    subject = federate(chosen_algorithm(RICH), model(kind), client=AdamW())
    given = clients(kind), batches(3, 2), [(0, 1, 2), (0, 2), (1, 2)], 0.01
    one, two, three = (run(subject, *given, lift).last for lift in (Sequential(), Threaded(2), Vectorized()))
    assert torch.equal(one, two) and gap(one, three) < 1e-10


# --- from the command line, and back ----------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_other_processes_are_bitwise_sequential(kind, file):
    settings = SMALL | {"rounds": 2, "clients": 3, "workers": 1}
    name = f"{kind}(length=12, hidden=8, layers=1, heads=2)"
    one, *others = (
        program(name, str(file), RICH, lift=lift, **settings) for lift in ("sequential", "wired", "processes")
    )
    for client, two in product((None, 0, 1, 2), others):
        a, b = one.model(client), two.model(client)
        assert all(torch.equal(a[key], b[key]) for key in a)
    assert {two.metrics[-1]["global_loss"] for two in others} == {one.metrics[-1]["global_loss"]}


@pytest.mark.slow
def test_a_run_of_a_file_resumes_and_its_model_loads_in_transformers(file, tmp_path, capsys):
    def words(out: Path, rounds: int) -> list[str]:
        flags = {"data": file, "model": "opt(length=16, hidden=8, layers=1, heads=2)", "split": "shards(1, by=natural)"}
        flags |= {"algorithm": RICH, "clients": 4, "steps": 3, "batch": 4, "lr": 0.01, "optimizer": "adamw"}
        flags |= {"out": out, "rounds": rounds, "workers": 1, "lift": "threaded"}
        return ["run", *(str(word) for pair in flags.items() for word in (f"--{pair[0]}", pair[1]))]

    main(words(tmp_path / "whole", 4))
    assert "Global" in capsys.readouterr().out
    whole = load_file(tmp_path / "whole" / "model.safetensors")
    stopped = tmp_path / "stopped"
    with pytest.raises(Stop):
        program(
            *("opt(length=16, hidden=8, layers=1, heads=2)", str(file), RICH),
            **{"split": "shards(1, by=natural)", "clients": 4, "steps": "3", "batch": 4, "lr": 0.01, "rounds": 4},
            **{"optimizer": "adamw", "workers": 1, "lift": "threaded", "out": str(stopped)},
            on_round=stopping(2),
        )
    resume(stopped)
    again = load_file(stopped / "model.safetensors")
    assert whole.keys() == again.keys() and all(torch.equal(whole[key], again[key]) for key in whole)
    config = transformers.OPTConfig(
        vocab_size=258, hidden_size=8, word_embed_proj_dim=8, ffn_dim=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=16, num_labels=3,
    )  # fmt: skip
    transformers.OPTForSequenceClassification(config).load_state_dict(whole)

    served = personalize(stopped, write(tmp_path / "new.jsonl", lines(20)), tmp_path / "new.safetensors", steps=2)
    assert served.samples == 4 and served.steps == 2 and load_file(tmp_path / "new.safetensors").keys() == whole.keys()
    with pytest.raises(UserError, match="'sea' is no known label; allowed: animal, color, sky"):
        personalize(stopped, write(tmp_path / "odd.jsonl", [{"text": "a", "intent": "sea"}] * 9))


@pytest.mark.slow
def test_text_is_told_from_what_is_none(file, tmp_path):
    bare = write(tmp_path / "bare.jsonl", [{"text": str(i), "role": f"r{i % 2}"} for i in range(20)])
    few = {"clients": 2, "rounds": 1, "steps": "1", "batch": 2, "split": "natural"}
    assert assemble(Config(data=str(bare), clients=2, split="natural")).config.model == "opt_lm"
    assert assemble(Config(data=str(file), clients=2, split="natural")).config.model == "opt"
    for name, data, words in [
        ("opt", "digits", "digits is none"),
        ("mlp", str(file), "take opt"),
        ("opt(hidden=10, heads=4)", str(file), "hidden=10, layers=2, heads=4"),
        ("opt_lm(layers=0)", str(file), "layers=0"),
        ("opt(folder=nowhere)", str(file), "nowhere"),
        ("opt_ml", str(file), "opt_lm"),
    ]:
        with pytest.raises(UserError, match=words):
            program(name, data, **few)
    for kind, wanted in [("opt", "fedcog"), ("opt_lm", "knn_per"), ("opt_lm", "class_mask"), ("opt_lm", "pefll")]:
        with pytest.raises(UserError, match=wanted):
            program(f"{kind}(length=8, hidden=8, layers=1, heads=1)", str(file), wanted, **few)


class Bag(nn.Module):
    """The sum of learnt vectors of tokens, and a linear layer: a module of one's own."""

    def __init__(self):
        super().__init__()
        self.vectors, self.head = nn.Embedding(258, 4, padding_idx=0), nn.Linear(4, 3)

    def forward(self, ids):
        return self.head(self.vectors(ids).sum(1))


def test_a_module_of_ones_own_takes_tokens(file):
    settings = SMALL | {"cohort": 1.0, "rounds": 10, "lr": 0.05}
    metrics = program(Bag(), str(file), **settings).metrics
    assert metrics[-1]["global_loss"] < metrics[0]["global_loss"] - 0.1


# --- a folder of the user's -----------------------------------------------------------------------------------------
@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A small OPT with weights and its own tokenizer of words, as `transformers` saves them."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {
        word: i for i, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *sorted(sum(map(list, WORDS), []))])
    }
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    fast.save_pretrained(tmp_path / "opt")
    config = transformers.OPTConfig(
        vocab_size=16, hidden_size=8, word_embed_proj_dim=8, ffn_dim=12, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=10, dropout=0.3,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(7)
        transformers.OPTForCausalLM(config).save_pretrained(tmp_path / "opt")
    return str(tmp_path / "opt")


def test_a_folder_gives_weights_and_tokenizer(folder, file):
    stored = transformers.OPTForCausalLM.from_pretrained(folder)
    for kind in KINDS:
        net = model(kind, 6, folder)
        kept = {k: v for k, v in net.state_dict().items() if k in stored.state_dict()}
        assert len(kept) >= 19 and all(torch.equal(v, stored.state_dict()[k]) for k, v in kept.items())
        assert net.model.config.dropout == net.model.config.attention_dropout == 0
        space, ids = Space(net), torch.randint(4, 13, (3, 6), generator=torch.Generator().manual_seed(0))
        theta, none = space.ravel(), space.ravel_buffers()
        assert torch.equal(space.outputs(theta, ids, none), space.training_outputs(theta, ids, none)[0])
        assert space.outputs(theta, ids, none).shape == ((3, CLASSES) if kind == "opt" else (3, 6, 16))
    data = load(str(file), None, text_models.opt(6, folder=folder).reading)
    assert data.x_train.max() < 13 and (data.x_train[:, 0] > 3).all() and (data.x_train == 1).any()
    result = program(f'opt_lm(length=6, folder="{folder}")', str(file), "fedals(alpha=2)", **SMALL)
    assert result.metrics[-1]["global_loss"] < result.metrics[0]["global_loss"]

    (Path(folder) / "model.safetensors").unlink()  # what is left says how large a model is, and how it reads
    fresh = model("opt_lm", 6, folder).state_dict()
    assert not torch.equal(fresh["lm_head.weight"], stored.state_dict()["lm_head.weight"])
    with pytest.raises(UserError, match="how large"):
        text_models.opt(folder=folder, hidden=8)
    with pytest.raises(UserError, match="rows are of 11"):
        make_model(f'opt(length=11, folder="{folder}")', (11,), 3)
    (Path(folder) / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="no tokenizer"):
        text_models.opt(folder=folder).reading.tokenizer  # noqa: B018


def test_a_folder_runs_no_code(folder, tmp_path, monkeypatch):
    """Neither Python that its files name, nor what hides in pickled weights; and nobody is asked to allow it."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    path, done = Path(folder), tmp_path / "done"
    (path / "evil.py").write_text(f"import pathlib\npathlib.Path({str(done)!r}).touch()\n")
    config, tokenizer = ((path / f"{name}.json").read_text() for name in ("config", "tokenizer_config"))
    (path / "config.json").write_text(
        config.replace('"opt"', '"evil"')[:-2] + ', "auto_map": {"AutoConfig": "evil.C"}}'
    )
    with pytest.raises(UserError, match="holds no model"):
        model("opt_lm", 6, folder)
    (path / "config.json").write_text(config)
    named = json.loads(tokenizer) | {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": [None, "evil.T"]}}
    (path / "tokenizer_config.json").write_text(json.dumps(named))
    with suppress(UserError):  # it may be read by its tokenizer.json alone
        text_models.opt(folder=folder).reading.tokenizer  # noqa: B018
    (path / "tokenizer_config.json").write_text(tokenizer)
    (path / "model.safetensors").unlink()
    torch.save(Evil(done), path / "pytorch_model.bin")
    with pytest.raises(UserError, match="holds no model"):
        model("opt_lm", 6, folder)
    assert not done.exists()


class Evil:
    """What makes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


# --- real data ------------------------------------------------------------------------------------------------------
def real(name: str) -> str:
    place = os.environ.get("APIECE_DATA")
    if not place or not any((Path(place) / f"{name}.jsonl{end}").is_file() for end in ("", ".gz")):
        pytest.skip(f"no {name} in APIECE_DATA")
    return name


def test_clinc150_sorted_by_domain():
    data = load(real("clinc150"), None, Reading(64))
    assert (len(data.x_train), len(data.x_test), data.classes) == (15000, 4500, 150)
    split = make_split(data, Shards(1, by="natural"), 5, seed=0)
    assert [len(set(data.natural_train[rows])) for rows in split.train] == [2] * 5  # type: ignore[index]
    assert [len(np.unique(data.y_train[rows])) for rows in split.train] == [30] * 5
    assert [len(np.unique(data.y_test[rows])) for rows in split.test] == [30] * 5
    assert sorted(make_split(data, Natural(), 10, 0).names)[0] == "auto_and_commute"


def test_shakespeares_speakers_are_clients():
    data = load(real("tinyshakespeare"), None, Reading(128))
    assert data.targets_train is not None and data.targets_test is not None
    targets = sum(int((y != IGNORED).sum()) for y in (data.targets_train, data.targets_test))
    assert targets == 1_020_755 + 7222  # every byte of every speech, and its end
    place = federation(data, make_split(data, Natural(20), 5, 0))
    assert place.pool[1].shape == place.pool[0].shape and len(place.names) == 5
