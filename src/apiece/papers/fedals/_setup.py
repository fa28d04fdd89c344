"""The set-up that FedALS's tables share (its section 7)."""

from __future__ import annotations

from apiece.reproduce.card import ACCURACY, Number
from apiece.reproduce.work import curve, last, runs, total

# One round is one synchronization of the head: tau = 5 local steps, so 20,000 iterations are 4,000 rounds.
SETUP = {
    "clients": 5, "cohort": 1.0, "split": "shards(1)", "model": "resnet20", "steps": "5", "batch": 64, "rounds": 4000,
    "optimizer": "sgd(momentum=0.9, weight_decay=0.0001)", "optimizer_state": "kept", "lr": 2.0**-5,
    "eval_every": 20, "checkpoint_every": 100, "panel": 1, "drift": "none",
}  # fmt: skip
COLUMNS = {
    "SVHN": {"data": "svhn", "augment": "flip + crop(4)"},
    "CIFAR-10": {"data": "cifar10", "augment": "flip + crop(4)"},
    "CIFAR-100": {"data": "cifar100", "augment": "flip + crop(4)"},
    "MNIST": {"data": "mnist"},
}
SMALL = {  # networks without BatchNorm, which two cores can bear
    "MNIST, a CNN, non-iid": COLUMNS["MNIST"] | {"model": "cnn"},
    "CIFAR-10, LeNet, non-iid": COLUMNS["CIFAR-10"] | {"model": "lenet"},
}
FIRST = 2.0**-7  # of a search; from 2^-5, SCAFFOLD's stays where nothing is learned, and so never climbs
SMOKE = {"data": "digits", "model": "cnn", "rounds": 2, "steps": "2", "batch": 8, "eval_every": 1, "augment": "none"}
COMMON = (  # also where a card has another network
    "the step size, which the paper searches by factors of two, from a value and on data that it does not name. Where "
    "a scale searches it: from 2^-7 (from 2^-5, SCAFFOLD's stays where nothing is learned), with one seed, on a tenth "
    "of the training samples, held out. Elsewhere: 2^-5 for all algorithms",
    "20,000 iterations, from the communicated numbers of its Table 2",
    "momentum, which is never reset, and flips and crops of CIFAR and SVHN: as in the authors' code",
    "three seeds, where the paper has 20",
)
OPEN = (
    *COMMON,
    "the batch statistics of BatchNorm: averaged with their layer, as in the authors' code",
    "MNIST in ResNet-20, which the authors' code cannot run: one input channel, no flips and no crops",
)
NUMBERS = {"accuracy": ACCURACY, "sent": Number("numbers sent and received by a client, millions", 2, 1e-6)}


def sent(run):
    """The numbers that one client sends and receives in the whole run."""
    return total("numbers_up", "numbers_down")(run) / run.config["clients"]


READINGS = {"accuracy": last("global_accuracy"), "curve": curve("global_accuracy"), "sent": sent}
WORK = runs(**READINGS)
