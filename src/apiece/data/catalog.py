"""The named data sets: what they are and where they come from. A light table; `apiece.data.sources` loads them."""

from __future__ import annotations

from typing import NamedTuple

OWN = "your own"  # the name of a model, a data set or a split that a program gave


class Source(NamedTuple):
    """One named data set; `files` are tried in the data folder, in order, then `hub` with the `datasets` package."""

    name: str
    samples: tuple[int, int]  # official train, test
    classes: int
    shape: tuple[int, ...]  # of one sample, as stored: [H, W] or [H, W, channels], uint8; () for text
    reference: str
    where: str
    files: tuple[str, ...] = ()
    hub: tuple[str, ...] = ()  # arguments of datasets.load_dataset
    mean: tuple[float, ...] | None = None  # per channel of the training pixels in [0, 1]; None: measured on loading
    std: tuple[float, ...] | None = None


_DIGITS = Source(
    "digits", (1437, 360), 10, (8, 8), "Alpaydin and Kaynak, 1998", "bundled with scikit-learn, nothing to download"
)
_MNIST = Source(
    "mnist", (60000, 10000), 10, (28, 28), "LeCun et al., 1998", "mnist.npz or Hugging Face",
    ("mnist.npz",), ("ylecun/mnist",), (0.1307,), (0.3081,),
)  # fmt: skip
_FASHION = Source(
    "fashion-mnist", (60000, 10000), 10, (28, 28), "Xiao et al., 2017", "fashion-mnist.npz or Hugging Face",
    ("fashion-mnist.npz", "fashion_mnist.npz"), ("zalando-datasets/fashion_mnist",), (0.2860,), (0.3530,),
)  # fmt: skip
_CIFAR10 = Source(
    "cifar10", (50000, 10000), 10, (32, 32, 3), "Krizhevsky, 2009", "cifar10.npz or Hugging Face",
    ("cifar10.npz",), ("uoft-cs/cifar10",), (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616),
)  # fmt: skip
_CIFAR100 = Source(
    "cifar100", (50000, 10000), 100, (32, 32, 3), "Krizhevsky, 2009", "cifar100.npz or Hugging Face",
    ("cifar100.npz", "cifar100_20k.npz"), ("uoft-cs/cifar100",), (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762),
)  # fmt: skip
_SVHN = Source(
    "svhn", (73257, 26032), 10, (32, 32, 3), "Netzer et al., 2011", "svhn.npz or Hugging Face",
    ("svhn.npz",), ("ufldl-stanford/svhn", "cropped_digits"),
)  # fmt: skip
_FEMNIST = Source(
    "femnist", (651421, 162856), 62, (28, 28), "Caldas et al., LEAF, 2018", "femnist.npz or Hugging Face",
    ("femnist.npz",), ("flwrlabs/femnist",),
)  # fmt: skip
_FLAIR = Source(
    "flair", (345879, 43960), 17, (256, 256, 3), "Song et al., 2022", "flair.npz: images, 17 labels each, users",
    ("flair.npz",),
)  # fmt: skip
_CLINC150 = Source(
    "clinc150", (15000, 4500), 150, (), "Larson et al., 2019", "clinc150.jsonl",
    ("clinc150.jsonl", "clinc150.jsonl.gz"),
)  # fmt: skip
_SHAKESPEARE = Source(
    "tinyshakespeare", (5777, 1445), 309, (), "Karpathy, 2015", "tinyshakespeare.jsonl",
    ("tinyshakespeare.jsonl", "tinyshakespeare.jsonl.gz"),
)  # fmt: skip

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (_DIGITS, _MNIST, _FASHION, _CIFAR10, _CIFAR100, _SVHN, _FEMNIST, _FLAIR, _CLINC150, _SHAKESPEARE)
}


def source_of(name: str) -> Source | None:
    """The data set of this name, in which case, dash and underscore do not count; None if there is none."""
    return SOURCES.get(name.lower().replace("_", "-"))
