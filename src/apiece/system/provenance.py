"""What a result was made with: the versions of Python, of packages and of plug-in packages with algorithms."""

from __future__ import annotations

import platform
import zlib
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

PACKAGES = ("apiece", "torch", "numpy", "scikit-learn", "safetensors")
GROUP = "apiece.algorithms"  # the entry points that add algorithms
MARK = "#sha256="  # between a plug-in's path and the hash of its content, as run.toml records it


def versions() -> dict[str, str]:
    """The versions of Python, of our packages that are installed, and of those that add algorithms."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    found |= {point.dist.name: point.dist.version for point in entry_points(group=GROUP) if point.dist}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def packages() -> dict[str, str]:
    """What must be equal on all ranks: the packages and apiece's own code. Python and the machine may differ."""
    found = {name: version for name, version in versions().items() if name not in ("python", "machine")}
    code = b"".join(path.read_bytes() for path in sorted(Path(__file__).parents[1].rglob("*.py")))
    return found | {"the fingerprint of apiece's code": f"{zlib.crc32(code):08x}"}
