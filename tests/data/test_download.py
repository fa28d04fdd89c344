"""Data sets come over HTTP from a hub, by the library that does so everywhere: here the hub is on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import hub

from apiece.data.catalog import SOURCES

pytestmark = pytest.mark.slow

datasets = pytest.importorskip("datasets")
IMAGE, CLASSES = datasets.Image(), lambda count: datasets.ClassLabel(num_classes=count)
PARTS = {"train": 140, "test": 20}
AS_PUBLISHED = {  # parts and columns, by their cards
    "mnist": (PARTS, {"image": IMAGE, "label": CLASSES(10)}),
    "fashion-mnist": (PARTS, {"image": IMAGE, "label": CLASSES(10)}),
    "cifar10": (PARTS, {"img": IMAGE, "label": CLASSES(10)}),
    "cifar100": (PARTS, {"img": IMAGE, "fine_label": CLASSES(100), "coarse_label": CLASSES(20)}),
    "svhn": (PARTS | {"extra": 3}, {"image": IMAGE, "label": CLASSES(10)}),
    "femnist": ({"train": 160}, {"image": IMAGE, "writer_id": datasets.Value("string"), "character": CLASSES(62)}),
}
LOADED = """
import json, sys
from apiece.data.sources import load
sets = map(load, sys.argv[1:])
print(json.dumps([[d.name, d.x_train.shape, d.x_test.shape, d.classes, d.natural_train is not None] for d in sets]))
"""


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    for name, (parts, columns) in AS_PUBLISHED.items():
        where, *configuration = SOURCES[name].hub
        hub.publish(root, where, parts, columns, SOURCES[name].shape, *configuration)
    return root


def call(address: str, home: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """A new process to which this is the hub, with nothing downloaded yet."""
    told = {"HF_ENDPOINT": address, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1", "HF_HUB_DOWNLOAD_TIMEOUT": "1"}
    kept = {k: v for k, v in os.environ.items() if k != "APIECE_DATA" and not k.startswith("HF_")}
    return subprocess.run([sys.executable, *map(str, words)], env=kept | told, capture_output=True, text=True)


def test_every_data_set_that_the_hub_has(published, tmp_path):
    assert AS_PUBLISHED.keys() == {source.name for source in SOURCES.values() if source.hub}
    with hub.serving(published) as address:
        ended = call(address, tmp_path, "-c", LOADED, *AS_PUBLISHED)
    assert ended.returncode == 0, ended.stderr
    for name, train, test, classes, natural in json.loads(ended.stdout):
        source, own = SOURCES[name], name == "femnist"  # which is published in one part: a fifth is for test
        assert train == [128 if own else 140, *source.shape] and test == [32 if own else 20, *source.shape], name
        assert classes == source.classes and natural is own, name


def test_a_run_on_clients_as_they_were_downloaded(published, tmp_path):
    run = ["-m", "apiece", "run", "--data", "femnist", "--split", "natural", "--clients", "7", "--cohort", "3"]
    with hub.serving(published) as address:
        ended = call(address, tmp_path, *run, *"--rounds 1 --steps 1 --out".split(), tmp_path / "run")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_download_that_breaks_off_says_what_to_put_where(published, tmp_path):
    with hub.serving(published, breaks=".parquet") as address:
        ended = call(address, tmp_path, "-m", "apiece", "run", "--data", "svhn", "--out", tmp_path / "run")
    last = ended.stderr.splitlines()[-1]
    assert ended.returncode == 2 and "Traceback" not in ended.stderr, ended.stderr
    assert last.startswith("apiece: svhn: no svhn.npz") and "--data-dir" in last
    assert not (tmp_path / "run").exists()
