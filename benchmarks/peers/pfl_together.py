"""pfl in several processes, as its guide to distributed simulation starts them: a request goes to all of them.

python pfl_together.py FOLDER PROCESSES
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path


def begin(processes: int) -> list[subprocess.Popen]:
    """Start the processes, with one thread each."""
    free = [socket.create_server(("localhost", 0)) for _ in range(processes)]
    addresses = ",".join(f"localhost:{one.getsockname()[1]}" for one in free)
    for one in free:
        one.close()
    command = [sys.executable, str(Path(__file__).with_name("pfl_round.py")), sys.argv[1], "1"]
    told = [{"PFL_WORKER_ADDRESSES": addresses, "PFL_WORKER_RANK": str(rank)} for rank in range(processes)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    return [subprocess.Popen(command, env=os.environ | one, **pipes) for one in told]


def main() -> None:
    """Run rounds forever."""
    workers = begin(int(sys.argv[2]))
    print([worker.stdout.readline() for worker in workers][0], end="", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        for rank, worker in enumerate(workers):
            worker.stdin.write(json.dumps(asked if rank == 0 else asked | {"save": None}) + "\n")
        answers = [json.loads(worker.stdout.readline()) for worker in workers]
        sums = {key: sum(answer[key] for answer in answers) for key in ("compute", "steps")}
        print(json.dumps({"wall": max(answer["wall"] for answer in answers)} | sums), flush=True)


if __name__ == "__main__":
    main()
