"""A small language model, trained on pooled text and then adapted by LoRA on clients of other domains.

1. `tokens` and `base`: a byte-pair tokenizer and a decoder of six million parameters learn the pooled text: the domains
   of CLINC150 and the roles of tiny Shakespeare that no client has.
2. Eight clients, four held-out domains and four roles, adapt it: adapters averaged, in parts, by period, or not at all.

Everything lies in --out and continues after an interruption: `table.md` has global and personal perplexity and bytes.
`--small` tries it all in a minute. APIECE_DATA names the folder with clinc150.jsonl.gz and tinyshakespeare.jsonl.gz.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from apiece.config.settings import Config
from apiece.experiment.launch import ensure
from apiece.report.records import Run, Runs
from apiece.report.results import read_run
from apiece.report.text import markdown, told
from apiece.system.files import atomic_write

SOURCES = {
    "clinc150": ("domain", ("banking", "kitchen_and_dining", "work", "small_talk")),
    "tinyshakespeare": ("role", ("GLOUCESTER", "DUKE VINCENTIO", "ROMEO", "JULIET")),
}
B = "'*lora_B*'"
ROWS = {
    "before": "fedavg",  # one round at a step size of 0
    "fedit": "fedit",
    "ffa": "ffa_lora",
    "fedsa": "fedsa_lora",
    "rolora": "rolora",
    "fedals": "fedals(alpha=5)",
    "scaffold_p": f"scaffold_p(personal={B})",
    "local": "local",
    "pooled": "centralized",
}
SIZE = {"vocab_size": 2048, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 6,
        "num_attention_heads": 8, "num_key_value_heads": 8, "max_position_embeddings": 64}  # fmt: skip
TINY = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "vocab_size": 320}  # fmt: skip
SETTINGS = Config(
    clients=8, split="natural", rounds=20, steps="10", batch=16, lr=0.002, optimizer="adamw", clip=1.0,
    drift="none", eval_every=5, weighting="uniform", adapter="lora(r=8, targets=all-linear)", lift="threaded",
    metrics=("perplexity",),
)  # fmt: skip


def texts() -> tuple[list[str], list[dict[str, str]]]:
    """(the pooled texts, the clients' lines)."""
    pooled, own = [], []
    for name, (owner, held) in SOURCES.items():
        with gzip.open(Path(os.environ["APIECE_DATA"]) / f"{name}.jsonl.gz", "rt") as lines:
            for record in map(json.loads, lines):
                if record[owner] in held:
                    own.append({"text": record["text"], "client": record[owner]})
                else:
                    pooled.append(record["text"])
    return pooled, own


def tokens(pooled: list[str], folder: Path, size: int) -> Any:
    """The tokenizer, made once."""
    import tokenizers
    import transformers

    if not (folder / "tokenizer.json").is_file():
        made = tokenizers.ByteLevelBPETokenizer()
        made.train_from_iterator(pooled, size, special_tokens=["<pad>", "</s>"], show_progress=False)
        kept = transformers.PreTrainedTokenizerFast(
            tokenizer_object=made._tokenizer, pad_token="<pad>", eos_token="</s>"
        )
        kept.save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def base(folder: Path, pooled: list[str], sizes: dict[str, int], steps: int, every: int = 100) -> None:
    """Train the decoder on blocks of the pooled text: AdamW, 3e-3 with a cosine; continues from its last save.

    The model is the one with the lowest loss on blocks held out; five evaluations without a lower one end the training.
    """
    import transformers

    tokenizer = tokens(pooled, folder, sizes["vocab_size"])
    stream = torch.tensor([t for text in pooled for t in (*tokenizer(text)["input_ids"], 1)])
    length = sizes["max_position_embeddings"]
    blocks = stream[: len(stream) // length * length].reshape(-1, length)
    held, blocks = blocks[::50], blocks[torch.arange(len(blocks)) % 50 > 0]
    torch.manual_seed(0)
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, "use_cache": False}
    config = transformers.AutoConfig.for_model("llama", **special, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config)
    optimizer, begun, saved = torch.optim.AdamW(model.parameters(), 3e-3), 0, folder / "training.pt"
    lowest, since, best = math.inf, 0, model.state_dict()
    if saved.is_file():
        state = torch.load(saved)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begun, lowest, since, best = (state[name] for name in ("step", "lowest", "since", "best"))
    for step in range(begun, steps):
        if since == 5:
            break
        rate = 3e-3 * min(1, (step + 1) / 100) * (0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * step / steps)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        rows = torch.randint(len(blocks), (32,), generator=torch.Generator().manual_seed(step))
        loss = model(input_ids=blocks[rows], labels=blocks[rows]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % every == 0 or step + 1 == steps:
            with torch.no_grad():
                apart = float(model(input_ids=held, labels=held).loss)
            print(f"step {step + 1} of {steps}: loss {loss.item():.3f}, held out {apart:.3f}", flush=True)
            since += 1
            if apart < lowest:
                lowest, since, best = apart, 0, {name: value.clone() for name, value in model.state_dict().items()}
            states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "best": best}
            torch.save(states | {"step": step + 1, "lowest": lowest, "since": since}, saved)
    model.load_state_dict(best)
    model.save_pretrained(folder)


def table(rows: list[Runs]) -> str:
    def shown(runs: Runs, key: str) -> str:
        value = runs.over(lambda run: run.last(key))
        return told(value, "{:.2f}".format) if value else "–"

    def sent(run: Run) -> float:
        return ((run.last("bytes_up") or 0) + (run.last("bytes_down") or 0)) / 1e6

    keys = ("global_perplexity", "personal_perplexity_mean", "personal_perplexity_worst_decile")
    lines = [
        [r.name, *(shown(r, key) for key in keys), told(r.over(sent), "{:.1f}".format), str(len(r.runs))] for r in rows
    ]
    return markdown(["algorithm", "global perplexity", "personal", "worst tenth", "MB sent", "seeds"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/language-adapters"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3000, help="of the base")
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    pooled, own = texts()
    sizes, folder, config = SIZE, given.out / "base", SETTINGS
    if given.small:
        sizes, pooled, own, given.steps = SIZE | TINY, pooled[::20], own[::20], 20
        config = replace(config, rounds=2, steps="2", batch=4)
    if not (folder / "model.safetensors").is_file():
        base(folder, pooled, sizes, given.steps)
    file = given.out / "clients.jsonl"
    atomic_write(file, "".join(json.dumps(line) + "\n" for line in own).encode())
    config = replace(config, data=str(file), model=f"hf({json.dumps(str(folder))}, length=32)")
    for seed in range(given.seeds):
        for name, algorithm in ROWS.items():
            still = {"lr": 0.0, "rounds": 1} if name == "before" else {}
            ensure(replace(config, algorithm=algorithm, seed=seed, **still), given.out / name / f"seed-{seed}")
            done = [(n, [given.out / n / f"seed-{s}" for s in range(seed + 1)]) for n in ROWS]
            rows = [Runs(n, tuple(read_run(f) for f in all if (f / "report.html").is_file())) for n, all in done]
            atomic_write(given.out / "table.md", table([row for row in rows if row.runs]).encode())


if __name__ == "__main__":
    main()
