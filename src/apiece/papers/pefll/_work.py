"""How PeFLL's cells are run, and what is read off them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from apiece.config.tables import from_table
from apiece.reproduce.work import curve, federated, last, runs

READ = runs(
    seen=last("personal_accuracy_mean"),
    unseen=last("unseen_accuracy"),
    seen_plain=last("personal_accuracy_unmasked"),
    unseen_plain=last("unseen_accuracy_unmasked"),
)


def work(settings, folder):
    """A run: with the embedding of its column, and under pFedHN with a descriptor learned for each new client."""
    own = dict(settings)
    own["algorithm"] = own["algorithm"].replace("embedding=auto", f"embedding={own.pop('embedding', 'auto')}")
    found = READ(own, folder)
    return found | ({"unseen": described(own, folder)} if own["algorithm"].startswith("pfedhn") else {})


def described(settings, folder):
    """The mean accuracy of new clients under pFedHN, each after 20 rounds for its descriptor (A.2)."""
    from apiece.config.assemble import assemble
    from apiece.experiment.descriptors import new_descriptor
    from apiece.experiment.run import trained
    from apiece.measure.scoring import score

    done = trained(assemble(from_table({**settings, "out": str(folder)}, str(folder))), Path(folder))
    task, place, found = done.experiment.federated.setup.task, done.experiment.federation, []
    for client in place.unseen:
        theta = new_descriptor(done.server, done.clients, client, done.experiment.lr(done.server.round - 1)).model
        predict = lambda x, theta=theta: task.space.outputs(theta, x, done.server.buffers)  # noqa: E731
        found.append(score(task, predict, place.test_pool, place.test_rows(client)).of(task.metrics)["accuracy"])
    return float(np.mean(found))


def correlated(settings, folder):
    """A run that measures, after each `eval_every` rounds, how well distances of descriptors rank clients."""
    own = {name: value for name, value in settings.items() if name != "embedding"}
    run = federated(own, folder, watchers=[correlation])
    return {"correlation": last("rank_correlation")(run), "curve": curve("rank_correlation")(run)}


def correlation(round):
    """The mean over unseen i of Spearman's correlation, over clients j, of |v_i - v_j| and |pi_i - pi_j|."""
    import torch
    from scipy.stats import rankdata

    if round.number % round.experiment.config.eval_every and not round.last:
        return {}
    experiment = round.experiment
    pipeline, place, data = experiment.federated.setup.broadcast, experiment.federation, experiment.dataset
    phi, counts = round.state.server.params[: pipeline.split], experiment.split.counts(data.y_train, data.classes)
    with torch.no_grad():
        v = np.array([pipeline.embed(phi, place.samples(c).all()).tolist() for c in range(len(counts))])
    pi = counts / counts.sum(1, keepdims=True)
    apart = lambda points, i: np.delete(np.linalg.norm(points - points[i], axis=1), i)  # noqa: E731
    ranks = ([rankdata(apart(points, i)) for points in (v, pi)] for i in place.unseen)
    return {"rank_correlation": float(np.mean([np.corrcoef(*both)[0, 1] for both in ranks]))}
