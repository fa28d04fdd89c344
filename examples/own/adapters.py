"""LoRA on a model of transformers: clients train and send adapters alone, and B stays with each client."""

import json
import sys
from pathlib import Path

from apiece import federate

LINES = [("{} is a fruit", "orchard"), ("{} runs in the field", "farm"), ("{} shines at night", "sky")]
NAMES = ["this one", "another", "the third", "one more", "the last", "something"]


def write(path: Path) -> Path:
    """Texts of three clients, one JSON object a line."""
    rows = [{"text": line.format(name), "client": client} for line, client in LINES for name in NAMES * 5]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(folder: str, file: Path, **settings):
    """`folder`: a causal language model with its tokenizer, as `save_pretrained` writes it, or its name on the hub."""
    model, adapter = f"hf({json.dumps(folder)}, length=12)", "lora(r=4, targets=all-linear)"
    given = {"split": "natural", "clients": 3, "rounds": 5, "steps": 5, "batch": 8, "optimizer": "adamw", "lr": 0.003}
    return federate(model, str(file), "fedavg_p(personal='*lora_B*')", adapter=adapter, **given | settings)


if __name__ == "__main__":
    print(run(sys.argv[1], write(Path("lines.jsonl"))))
