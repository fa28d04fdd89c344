"""Memory of adapters on a frozen base: the base lies in memory once, and clients in one call add their adapters.

    python benchmarks/adapter_memory.py          a decoder of 100 million parameters in bfloat16, lora(r=8)
    python benchmarks/adapter_memory.py --small  the same of a million, to try it

Each line is a process of its own that trains one round, all clients at a time in threads; peak is what it took beyond
a run of a small model, activations included.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

import torch

CLIENTS = (1, 2, 4, 8)


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def base(small: bool) -> torch.nn.Module:
    from transformers import AutoConfig, AutoModelForCausalLM

    size = {"n_embd": 128, "n_layer": 4, "n_head": 4} if small else {"n_embd": 768, "n_layer": 12, "n_head": 12}
    config = AutoConfig.for_model("gpt2", vocab_size=20_000, n_positions=64, use_cache=False, **size)
    return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def one(clients: int, small: bool) -> None:
    """Train one round of so many clients in one call, and print what it took."""
    from apiece import federate

    ids = torch.randint(0, 20_000, (8 * clients, 33))
    data, given = ({"input_ids": ids[:, :-1]}, ids[:, 1:]), {"split": "iid", "rounds": 1, "steps": "1", "batch": 4}
    given |= {"adapter": "lora(r=8, targets=c_attn)", "lift": "threaded", "workers": clients, "drift": "none"}
    federate(base(True), data, clients=1, **given)
    before, module = megabytes(), base(small)
    numbers, held = sum(p.numel() for p in module.parameters()), megabytes() - before
    result = federate(module, data, clients=clients, **given)
    adapters = result.experiment.federated.setup.task.space.size
    print(
        f"{clients} clients: base {numbers / 1e6:.0f} million parameters, {held:.0f} MB; adapters "
        f"{adapters / 1e6:.2f} million each, {4 * adapters / 1e6:.1f} MB; peak {megabytes() - before:.0f} MB"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--clients", type=int)
    given = parser.parse_args()
    if given.clients:
        one(given.clients, given.small)
    else:
        for clients in CLIENTS:
            words = [sys.executable, __file__, "--clients", str(clients), *(["--small"] if given.small else [])]
            subprocess.run(words, check=True)
