"""The set-up that FedCOG's tables and figures share (its section 6.1 and appendix A.2)."""

from __future__ import annotations

from apiece.reproduce.card import ACCURACY, Number
from apiece.reproduce.work import curve, last, runs

SETUP = {
    "clients": 10, "cohort": 1.0, "model": "cnn_fedcog", "rounds": 70, "steps": "400", "batch": 64, "lr": 0.01,
    "optimizer": "sgd(momentum=0.9, weight_decay=1e-05)", "weighting": "samples", "augment": "flip + crop(4)",
    "eval_every": 1, "checkpoint_every": 10, "panel": 1, "drift": "none",
}  # fmt: skip
NIID1, NIID2 = {"split": "dirichlet_capped(0.1)"}, {"split": "classes(2, order=clusters)"}
FASHION, CIFAR10 = {"data": "fashion-mnist"}, {"data": "cifar10"}
CIFAR100 = {"data": "cifar100", "model": "cnn_fedcog_cifar100"}
COLUMNS = {
    "Fashion-MNIST NIID-1": FASHION | NIID1,
    "Fashion-MNIST NIID-2": FASHION | NIID2,
    "CIFAR-10 NIID-1": CIFAR10 | NIID1,
    "CIFAR-10 NIID-2": CIFAR10 | NIID2,
    "CIFAR-100 NIID-1": CIFAR100 | NIID1,
    "CIFAR-100 NIID-2": CIFAR100 | {"split": "classes(10, order=clusters)"},
}
BASELINES = {
    "FedAvg": "fedavg", "FedAvgM": "fedavgm(beta=0.1)", "FedProx": "fedprox(mu=0.01)", "SCAFFOLD": "scaffold",
    "MOON": "moon(mu=0.01)", "FedSAM": "fedsam(rho=0.5)", "VHL": "vhl(align=1, epochs=5)",
    "FedExP": "fedexp(epsilon=0.001)", "FedDecorr": "feddecorr(beta=0.01)", "FedReg": "fedreg", "FedGen": "fedgen",
}  # fmt: skip
SMOKE = {
    "data": "digits", "model": "cnn", "clients": 5, "rounds": 2, "steps": "2", "batch": 8, "augment": "none",
    "split": "dirichlet_capped(0.5)",
}  # fmt: skip
CPU = {"rounds": 24, "steps": "100", "eval_every": 2}  # wait=20: 20 rounds of FedAvg, then 4 of FedCOG
FEWER = "24 rounds (the last 4 of FedCOG) of 100 local steps instead of 70 (20) of 400"
OPEN = (
    "momentum 0.9, weight decay 1e-5 and batches of 64: the authors' code's",
    "flips of half of the training images and crops of all, padded by 4; a Dirichlet split in which a client that "
    "has its share gets no more, and groups of clients that share 2 (10) classes: as in the authors' code",
    "the reported accuracy: the last round's; the code prints it, and the best so far; the number of seeds: three",
    "the weight of distillation: 0.01, the paper's default; the code has the weights by counts of A.2.2 alone",
    "the targets of the generated samples: complementary (A.1.1), by largest remainder to exactly 256",
    "steps of generation: 100 (A.4.4), where the code has 500; their step size: 0.01, Adam(0.5, 0.9), the code's",
    "disagreement: the paper's (2), where the code has reversed and clamped divergences",
)
OPEN_BASELINES = (
    "SCAFFOLD (option II by the mean gradient), FedReg and FedGen: their authors' values; MOON: temperature 0.5 and "
    "features before the last layer; FedAvgM: Hsu's form; FedExP: the last model, where its paper averages the last "
    "two; VHL: Gaussian noise, where the default of its code is images of an untrained StyleGAN",
)
OPEN_PART = (
    "clients that take part in some rounds alone: their model is that of their last time, and before the first one "
    "there is no disagreement; the code has another random model then"
)
OPEN_LABELS = (
    "generated samples with several labels: each is to have one, and JS and KL are means over the labels, of which "
    "each has a probability of its own; the other images are augmented as above"
)
NUMBERS = {"accuracy": ACCURACY}
SECONDS = Number("seconds of clients' training in a round", 2, timed=True)
READINGS = {"accuracy": last("global_accuracy"), "curve": curve("global_accuracy")}
WORK = runs(**READINGS)


def cog(more="", **values):
    """FedCOG after 50 rounds of FedAvg, or of another algorithm that it is added to."""
    text = ", ".join(f"{name}={value}" for name, value in ({"wait": 50} | values).items())
    return f"{more} + fedcog({text})" if more else f"fedcog({text})"


def rows(algorithms):
    """Rows of these algorithms."""
    return {row: {"algorithm": text} for row, text in algorithms.items()}


def after(wait, table, *names):
    """The named rows (none: all), where FedCOG begins after so many rounds."""
    some = {row: settings for row, settings in table.items() if row in names or not names}
    return {row: {"algorithm": s["algorithm"].replace("wait=50", f"wait={wait}")} for row, s in some.items()}


def means(text):
    """Means by row, of lines of text; a name's words are joined by _."""
    lines = [line.split() for line in text.strip().splitlines()]
    return {name.replace("_", " "): list(map(float, rest)) for name, *rest in lines}
