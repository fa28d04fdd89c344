"""The package can be imported on Windows, which lacks modules and functions of Linux."""

from __future__ import annotations

import subprocess
import sys

import pytest

# what others import of these stands: only our own modules are then imported without them
PRETEND = """
import importlib, os, pkgutil, signal, sys
import filelock, lazy_loader, matplotlib.pyplot, multiprocessing.forkserver, multiprocessing.resource_tracker
import numpy, rich.progress, safetensors.torch, sklearn.datasets, torch.distributed.nn.functional, torch.func, tyro

for name in ("fcntl", "grp", "posix", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("SIGHUP", "SIGKILL", "pthread_sigmask"):
    delattr(signal, name)
for name in ("O_CLOEXEC", "O_DIRECTORY", "fork", "posix_fadvise", "pread", "pwrite", "sched_getaffinity"):
    delattr(os, name)
import apiece

for module in pkgutil.walk_packages(apiece.__path__, "apiece."):
    if module.name != "apiece.__main__":
        importlib.import_module(module.name)
for name in apiece.__all__:
    getattr(apiece, name)
print(len([name for name in sys.modules if name.startswith("apiece.")]))
"""


@pytest.mark.slow
def test_every_module_can_be_imported():
    ended = subprocess.run([sys.executable, "-c", PRETEND], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 150
