"""The set-up that PeFLL's tables and figures share (its section 4 and appendix A)."""

from __future__ import annotations

from apiece.reproduce.card import ACCURACY

SETUP = {
    "model": "lenet", "rounds": 5000, "batch": 32, "lr": 0.01, "optimizer": "sgd(momentum=0.9)", "epochs": 1,
    "validation": 0.2, "unseen": 0.1, "eval_every": 30, "checkpoint_every": 100, "drift": "none",
}  # fmt: skip
CIFAR10 = {"data": "cifar10", "split": "classes(2)", "embedding": "cnn"}
CIFAR100 = {"data": "cifar100", "split": "classes(10)", "embedding": "linear"}
COLUMNS = {
    f"{name} {n} clients": {**data, "clients": n, "cohort": n // 20}
    for name, data in (("CIFAR-10", CIFAR10), ("CIFAR-100", CIFAR100))
    for n in (100, 500, 1000)
}
FEMNIST = {"data": "femnist", "split": "natural", "cohort": 5, "validation": 0.1, "embedding": "cnn"}
FIRST = "CIFAR-10 100 clients"  # the column of the scale cpu
WRITTEN = {"lr": 0.002, "clip": 50.0, "epochs": None, "steps": "50", "weighting": "uniform", "optimizer": None}
BASELINES = {
    "Local": {"algorithm": "local(epochs=200)", "rounds": 200, "cohort": 1.0},
    "FedAvg": {"algorithm": "fedavg"},
    "Per-FedAvg": {"algorithm": "per_fedavg(alpha=0.01)"},
    "FedRep": {"algorithm": "fedrep(epochs=20)", "epochs": 6},
    "pFedMe": {"algorithm": "pfedme(lam=15, steps=3, beta=1, epochs=20)", "lr": 0.005, "optimizer": "sgd"},
    "kNN-Per": {"algorithm": "knn_per(count=10, scale=100)"},
    "pFedHN": {"algorithm": "pfedhn", **WRITTEN, "lr": 0.005},
}
SMOKE = {
    "data": "digits", "split": "classes(2)", "clients": 10, "cohort": 3, "model": "mlp", "rounds": 2, "batch": 8,
    "eval_every": 1, "validation": 0.0,
}  # fmt: skip
AS_PAPER = "As the paper has it, and as the authors' code where we took that (see above)"
SEEN = ACCURACY._replace(title="accuracy on clients seen in training, %")
UNSEEN = ACCURACY._replace(title="accuracy on clients not seen in training, %")
OPEN = (
    "the reported step: the last; the authors' code takes the one with the best validation accuracy of seen clients",
    "the hypernetwork's optimizer and regularization: Adam with 2e-4 and none, as in the authors' code; the paper has "
    "SGD in Algorithm 2, and lambda_h = lambda_v = 0.001 and lambda_theta = 0 in A.2",
    "the clients' step size under PeFLL, 0.002, their weight decay, 5e-5, and the clipping at norm 50: the code's",
    "the descriptor's affine map, frozen from the first client: as in the code, and not in the paper",
    "the accuracy: the mean over clients, where the code counts all samples together; these differ where clients' "
    "shares do, as in FEMNIST and under Dirichlet splits",
    "the clients of a round: 5 % of all clients, 5 of 100, as in the authors' code, drawn among those that train",
    "the mask: PeFLL's clients predict only the classes that they have, as in its authors' code; no baseline's do "
    "(`pefll-mask` has both)",
    "the descriptor: of a batch of its own in training, and int(1 + n/4) numbers, where A.2 has n/4; of all samples of "
    "a client when it predicts, where A.2 has one batch of 32; the hypernetwork has no ReLU before its last layers, "
    "where Table 4 has one: the code's",
)
OPEN_BASELINES = (
    "the baselines' step sizes, which the paper searches by a grid that it does not name: 0.01; for pFedMe its "
    "authors' 0.005 without momentum, and for pFedHN its authors' 0.005 and 50 steps",
    "the passes of FedAvg, kNN-Per and pFedMe in a round: one, as Per-FedAvg; the inner steps of pFedMe: of 0.01",
    "the neighbors of kNN-Per: 10, where each client takes the better of 5 and 10 in the paper; their weight: that "
    "which is right most often on a client's training samples, where the paper cross-validates",
    "pFedHN asks 5 % of the clients in a round and has batches of 32, as all others here; its authors ask one, with 64",
)
OPEN_DECAY = (
    "lambda_h and lambda_v: a decoupled decay by 2 lr lambda, where the code's Adam has none; in 5,000 rounds it takes "
    "0.2 % of the weights at 1e-3 (Algorithm 2 with a step of 0.002: 2 %), so the columns are one run but for "
    "rounding, and “modest amounts of hypernetwork regularization [...] improve client-level generalization” is no "
    "claim here; in the paper the columns differ by up to 3.7 points"
)


def pefll(mask=True, **values):
    """The row of PeFLL with these values of its own; with the mask, a client predicts only the classes that it has."""
    text = ", ".join(f"{name}={value}" for name, value in values.items())
    return {**WRITTEN, "algorithm": f"pefll({text})" + (" + class_mask" if mask else "")}
