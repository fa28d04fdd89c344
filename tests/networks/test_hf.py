"""Models of transformers by name or as they are, and adapters in them: trained, resumed, exported, read by peft."""

import json
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from support.outer import cli, metrics, sentence
from support.recipes import Stop, stopping
from support.results import same_models
from torch import nn

from apiece import federate
from apiece.config.assemble import assemble
from apiece.experiment.folders import read_one
from apiece.experiment.launch import resume
from apiece.experiment.run import trained
from apiece.networks.adapters import lora
from apiece.networks.attention import attention, register
from apiece.networks.hf import OfTokens, hf

transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")

WORDS = [("red", "blue", "green"), ("cat", "dog", "hen"), ("sun", "moon", "fog")]
TINY = {
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16},
    "llama": {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "max_position_embeddings": 16},
    "mistral": {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
                "num_key_value_heads": 2, "max_position_embeddings": 16, "sliding_window": 4},
    "bert": {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
             "max_position_embeddings": 16},
}  # fmt: skip
HEADS = {"causal-lm": "AutoModelForCausalLM", "sequence-classification": "AutoModelForSequenceClassification"}
KINDS = [("gpt2", "causal-lm"), ("llama", "causal-lm"), ("gpt2", "sequence-classification"),
         ("bert", "sequence-classification")]  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of a kind of model with new weights and a tokenizer of words, as transformers saves them."""
    tokenizers = pytest.importorskip("tokenizers")
    made = {}

    def folder(kind: str, task: str) -> str:
        if (kind, task) not in made:
            path = tmp_path_factory.mktemp(f"{kind}-{task}")
            words = ["<pad>", "</s>", "<unk>", *(word for group in WORDS for word in group)]
            own = tokenizers.Tokenizer(
                tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>")
            )
            own.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
            tokenizer = transformers.PreTrainedTokenizerFast(
                tokenizer_object=own, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
            )
            tokenizer.save_pretrained(path)
            config = transformers.AutoConfig.for_model(kind, vocab_size=len(words), pad_token_id=0, **TINY[kind])
            config.num_labels = 3
            torch.manual_seed(0)
            getattr(transformers, HEADS[task]).from_config(config).save_pretrained(path)
            made[kind, task] = str(path)
        return made[kind, task]

    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    records = [
        {
            "text": " ".join(rng.choice(WORDS[i % 3], size=rng.integers(2, 7))),
            "intent": "abc"[i % 3],
            "domain": "wxyz"[i % 4],
        }
        for i in range(96)
    ]
    path = tmp_path / "small.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def settings(source: str, task: str, **more) -> dict:
    small = {"split": "natural", "clients": 4, "rounds": 3, "steps": "2", "batch": 4, "lr": 0.01, "lift": "sequential"}
    return small | {"model": f"hf({json.dumps(source)}, task={task}, length=8)"} | more


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_a_folder_is_the_model_that_transformers_loads(folders, kind, task):
    """Scores are those of the model with its own attention, at the tokens that are no padding."""
    source = folders(kind, task)
    ours = hf(source, task, 8).module((8,), 3).eval()
    theirs = getattr(transformers, HEADS[task]).from_pretrained(source, num_labels=3).eval()
    ids = torch.randint(3, 12, (5, 8))
    ids[1, 5:] = 0
    with torch.no_grad():
        one, two = ours(ids), theirs(input_ids=ids, attention_mask=(ids > 0).long()).logits
    real = ids > 0 if task == "causal-lm" else slice(None)
    assert torch.allclose(one[real], two[real], atol=1e-5)
    assert ours.mask_is_whole


def test_a_model_with_windows_of_its_own_keeps_them(folders):
    ours = hf(folders("mistral", "causal-lm"), "causal-lm", 8).module((8,), 3).eval()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folders("mistral", "causal-lm")).eval()
    ids = torch.randint(3, 12, (2, 8))
    assert not ours.mask_is_whole and torch.allclose(ours(ids), theirs(ids).logits, atol=1e-5)


def test_a_model_that_caps_its_scores_keeps_its_own_attention():
    """A cap of 50 does not show in small scores, as new weights give them; it does when they have grown."""
    register()
    torch.manual_seed(0)
    config = transformers.Gemma2Config(vocab_size=12, head_dim=4, pad_token_id=0, use_cache=False, **TINY["llama"])
    theirs = transformers.Gemma2ForCausalLM(config).eval()
    ours = OfTokens(deepcopy(theirs), 0, 8)
    ids = torch.randint(3, 12, (2, 8))
    for name, p in [*theirs.named_parameters(), *ours.named_parameters()]:
        if "q_proj" in name or "k_proj" in name:
            p.data *= 300
    with torch.no_grad():
        assert torch.allclose(ours(ids), theirs(input_ids=ids).logits, atol=1e-5)


@pytest.mark.parametrize("given", [{"softcap": 50.0}, {"s_aux": torch.zeros(1)}, {"sliding_window": 2}, {"odd": 1}])
def test_our_attention_refuses_what_it_would_drop(given):
    q, mask = torch.zeros(1, 1, 3, 2), torch.ones(1, 1, 3, 3, dtype=torch.bool)
    attention(nn.Identity(), q, q, q, mask, 1.0, use_cache=False, position_ids=mask, odd=None, sliding_window=3)
    with pytest.raises(TypeError, match="softcap|s_aux|window|odd"):
        attention(nn.Identity(), q, q, q, mask, 1.0, **given)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_lifts_agree(folders, file, kind, task):
    runs = [
        federate(data=file, **settings(folders(kind, task), task, lift=lift, rounds=2, algorithm="scaffold"))
        for lift in ("sequential", "threaded", "processes", "vectorized")
    ]
    same_models(*runs[:2])
    same_models(runs[0], runs[2])
    one, other = runs[0].model(), runs[3].model()
    assert max(float((one[name] - other[name]).abs().max()) for name in one) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedavg", "fedals(2)", "scaffold_p(personal='*lora_B*')", "relaxed_init(0.1)"])
def test_adapters_by_name(folders, file, tmp_path, algorithm):
    """What is trained and sent is the adapters; a run that was stopped ends as one that was not."""
    given = settings(folders("llama", "causal-lm"), "causal-lm", adapter="lora(r=2, targets='q_proj,v_proj')", lr=0.1)
    whole = federate(data=file, algorithm=algorithm, **given)
    with pytest.raises(Stop):
        federate(data=file, algorithm=algorithm, out=tmp_path / "run", on_round=stopping(1), **given)
    resume(tmp_path / "run")
    assert [row["global_loss"] for row in metrics(tmp_path / "run")] == [row["global_loss"] for row in whole.metrics]
    size = 2 * (2 * 16 + 2 * 16 + 2 * 16 + 2 * 8)  # A and B of q and v, in two layers
    assert whole.experiment.federated.setup.task.space.size == size
    assert all("lora_" in entry.name for entry in whole.experiment.federated.setup.task.space.parameters)
    assert whole.metrics[-1]["parameters_up"] <= 3 * 4 * size


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedit", "fedsa_lora", "scaffold + relaxed_init(0.1)"])
def test_adapters_over_the_wire(folders, file, algorithm):
    """Each client in a process of its own, and masks of dropout too: bitwise the run in one process."""
    given = settings(folders("llama", "causal-lm"), "causal-lm", algorithm=algorithm, rounds=2)
    given |= {"adapter": "lora(r=2, targets='q_proj,v_proj', dropout=0.1)"}
    same_models(*(federate(data=file, **given | {"lift": lift}) for lift in ("sequential", "wired")))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:fan_in_fan_out", "ignore::FutureWarning")
def test_peft_loads_what_is_exported(folders, file, tmp_path):
    import peft

    source = folders("gpt2", "sequence-classification")
    model = settings(source, "sequence-classification", adapter="lora(r=2, targets=c_attn, train=score)", lr=0.3)
    result = federate(data=file, out=tmp_path / "run", **model)
    assert cli("export", tmp_path / "run", "--out", tmp_path / "adapter").code == 0
    base = transformers.AutoModelForSequenceClassification.from_pretrained(source, num_labels=3)
    theirs = peft.PeftModel.from_pretrained(base, str(tmp_path / "adapter")).eval()
    space, ids = result.experiment.federated.setup.task.space, torch.randint(3, 12, (4, 8))
    ours = space.outputs(result.server.params, ids, result.server.buffers)
    assert torch.allclose(ours, theirs(input_ids=ids).logits, atol=1e-5)
    assert not torch.allclose(
        base.eval()(input_ids=ids).logits, hf(source, "sequence-classification", 8).module((8,), 3)(ids)
    )


def test_a_model_of_ones_own_may_have_adapters_too():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rng = np.random.default_rng(0)
    x = rng.standard_normal((90, 6)).astype(np.float32)
    result = federate(model, (x, (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)), adapter="lora(r=2, targets='0,2')",
                      clients=3, rounds=2, steps=2, split="iid")  # fmt: skip
    assert result.experiment.federated.setup.task.space.size == 2 * (6 + 8) + 2 * (8 + 3)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(p.requires_grad for p in model.parameters())


def test_a_model_as_it_is_takes_named_inputs(folders):
    """No wrapper: a dict of ids and mask in, named outputs out."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folders("bert", "sequence-classification"), num_labels=3
    )
    ids = np.random.default_rng(0).integers(3, 12, (60, 8))
    data = ({"input_ids": ids, "attention_mask": np.ones_like(ids)}, ids[:, 0] % 3)
    given = {"clients": 3, "rounds": 2, "steps": 3, "split": "iid", "lr": 0.05}
    exact = [federate(model, data, lift=lift, **given) for lift in ("sequential", "threaded")]
    same_models(*exact)
    assert exact[0].metrics[-1]["global_accuracy"] >= 0


@pytest.mark.parametrize(
    ("model", "adapter", "said"),
    [
        ("hf('./absent')", None, "no such folder"),
        ("hf(FOLDER, task=segmentation)", None, "task"),
        ("hf(FOLDER, length=64)", None, "takes 16"),
        ("hf(FOLDER, length=8)", "lora(targets=nothing)", "q_proj"),
        ("hf(FOLDER, length=8)", "lora(r=0)", "r is 1 or more"),
        ("hf(FOLDER, length=8)", "prefix(r=2)", "lora"),
        ("hf(FOLDER, length=8)", "lora(r=2)", "write lora(..., local=8) as the adapter"),
        ("hf(FOLDER, length=8)", "lora(local=0)", "local, the rank of the second adapter, is 1 or more"),
        ("hf(FOLDER, length=8)", "lora(local=yes)", "local"),
    ],
)
def test_what_cannot_be_is_one_sentence(folders, file, model, adapter, said):
    text = model.replace("FOLDER", json.dumps(folders("llama", "causal-lm")))
    words = ["--model", text, *(["--adapter", adapter] if adapter else [])]
    words += ["--algorithm", "fed_dpa"] if adapter == "lora(r=2)" else []
    sentence(cli("run", "--data", file, "--split", "natural", "--clients", "4", *words), said)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:fan_in_fan_out", "ignore::FutureWarning", "ignore:Already found a `peft_config`")
def test_a_local_adapter_beside_the_shared_one(folders, file, tmp_path):
    """FedDPA by one command: each client keeps its own adapter, and peft adds both to the model as we do."""
    import peft

    source = folders("llama", "causal-lm")
    adapter = "lora(r=2, alpha=4, targets='q_proj,v_proj', local=3)"
    words = ["--model", f"hf({json.dumps(source)}, task=causal-lm, length=8)", "--adapter", adapter, "--lr", 0.3]
    words += ["--data", file, "--split", "natural", "--clients", 4, "--rounds", 2, "--steps", 4, "--batch", 4]
    ended = cli("run", *words, "--algorithm", "fed_dpa", "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    size = {r: 2 * r * (16 + 16 + 16 + 8) for r in (2, 3)}  # A and B of q and v, in two layers
    assert metrics(tmp_path / "run")[-1]["parameters_up"] == 2 * 4 * size[2]
    assert f"parameters = {size[2] + size[3]}" in (tmp_path / "run" / "run.toml").read_text()
    client = cli("export", tmp_path / "run", "--client", "w", "--out", tmp_path / "own")
    assert client.code == 0, client.err
    assert cli("export", tmp_path / "run", "--out", tmp_path / "whole.safetensors").code == 0
    run = trained(assemble(read_one(tmp_path / "run")), tmp_path / "run")
    module = run.experiment.module
    module.load_state_dict(run.model("w"))
    base = transformers.AutoModelForCausalLM.from_pretrained(source)
    theirs = peft.PeftModel.from_pretrained(base, str(tmp_path / "own"))
    theirs.load_adapter(str(tmp_path / "own" / "local"), "local")
    theirs.base_model.set_adapter(["default", "local"])
    ids = torch.randint(3, 12, (4, 8))
    assert torch.allclose(module.eval()(ids), theirs.eval()(input_ids=ids).logits, atol=1e-5)
    theirs.base_model.set_adapter(["default"])
    assert not torch.allclose(module(ids), theirs(input_ids=ids).logits, atol=1e-3)
    differ = {name for name, leaf in run.model("w").items() if not torch.equal(leaf, run.model("x")[name])}
    assert differ and all(".local." in name for name in differ)


def test_a_second_adapter_changes_nothing_of_the_first():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(4, 6)
    torch.manual_seed(1)
    one = lora(r=2, targets="0,2").into(model)
    torch.manual_seed(1)
    two = lora(r=2, targets="0,2", local=4, train="1").into(model)
    second = {name: p for name, p in two.named_parameters() if ".local." in name}
    assert {tuple(p.shape) for p in second.values()} == {(4, 6), (8, 4), (4, 8), (3, 4)}
    assert all(p.requires_grad for p in second.values()) and torch.equal(one(x), two(x))  # each B begins at zero
    torch.nn.init.ones_(second["0.lora_B.local.weight"])
    scale = 16.0 / 4
    added = scale * second["0.lora_A.local.weight"].sum(0).expand(8, 6)
    assert torch.allclose(two[0](x), one[0](x) + x @ added.T, atol=1e-5)
