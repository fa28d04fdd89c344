"""The named algorithms that have no piece: averaging alone, sums of periods, and pooled data."""

from __future__ import annotations

from apiece.algebra.composition import Algorithm, Cohort, Period, Phase, algorithm, changed
from apiece.algebra.papers import paper
from apiece.algebra.periods import NEVER
from apiece.errors import UserError


@paper("its Algorithm 1", weighting="samples", optimizer="sgd")
def fedavg() -> Algorithm:
    """Federated averaging (McMahan et al. 2017).

    w_i <- w_i - lr grad f_i(w_i), K times from w_i = w;   w <- sum_i p_i w_i, with the run's weights (its Algorithm 1).
    Stored: nothing. Sent: w down and w_i up. An unseen client uses the global model.

    Use it first: everything else is compared with it, and where clients differ little it is hard to beat.
    """
    return algorithm(name="fedavg")


@paper("its experiments and its code", weighting="samples", optimizer="sgd(momentum=0.9, weight_decay=0.0001)")
def fedals(
    alpha: int = 10, head: str | int | None = None, cohort: str = Algorithm.cohort, phase: str = Algorithm.phase
) -> Algorithm:
    """The body is averaged alpha times less often than the head; head: a pattern, or the number of layers in the body;
    cohort=held|redrawn, phase=last_step|first_step (Gholami and Seferoglu 2024).

    Algorithm 1, where h_k is the head and phi_k the body of client k; a round t = 0, 1, ... has tau local steps:

        (h_k, phi_k) <- (h_k, phi_k) - eta grad F_k(h_k, phi_k)     tau times
        h_k <- mean_j h_j                                           in every round
        phi_k <- mean_j phi_j                                       where (t + 1) mod alpha = 0

    Each is averaged after the local steps by its own condition; lines 6 to 9 print an `else` that is never reached.
    phase=first_step is the authors' code, whose iteration s averages a group of period H where s mod H = 0: the first
    of all local steps is a round of its own, after which both are averaged, and phi_k again where t mod alpha = 0.
    alpha=1 is federated averaging. More groups: `fedals(1) + period(conv1, 10) + period(conv2, 5)`, as the code has a
    period for each. Not in the paper: where only some clients are asked, they take the server's head and continue from
    their own body if they trained in this interval. Stored: phi_k and the body as it was sent, between two of its
    averagings. Sent: the head in every round, the body once an interval. An unseen client uses the global model.

    Use it where communication is what counts and the body is much larger than the head: the body crosses once in alpha
    rounds. Accuracy may fall as alpha grows.
    """
    if alpha < 1:
        raise UserError(f"fedals(alpha={alpha}) is impossible: alpha is 1 or more.")
    body = head if isinstance(head, int) else "body" if head is None else f"!{head}"
    parts = [Period(body, alpha)] if alpha > 1 else []
    named = f"fedals(alpha={alpha}{changed(fedals, cohort=cohort, phase=phase)})"
    return algorithm(*parts, Cohort(cohort), Phase(phase), name=named)


def period(which: str | int = "body", every: int | float = 10, offset: int = Period.offset) -> Algorithm:
    """The selected parameters are averaged every so many rounds (inf: never), later by an offset, under any algorithm,
    a term for each group, as in the code of FedALS (Gholami and Seferoglu 2024).

    theta_k <- mean_j theta_j in rounds t = 0, 1, ... where (t + 1 - offset) mod every = 0, for the parameters that
    `which` selects: head, body, norm, a pattern of names, or leading layers. With offsets groups take turns:
    `period(body, 2) + period(head, 2, 1)` averages the head in the first round, the body in the second, and so on. Of
    several terms for a parameter, the longest period holds, then the largest offset. Stored and sent, and for an unseen
    client: as under `fedals`, or under `fedavg_p` if never averaged.

    Use it to say which parameters are averaged how often, under any algorithm.
    """
    return algorithm(Period(which, every, offset), name=f"period({which}, {every}{changed(period, offset=offset)})")


@paper("the authors' code on digits", weighting="uniform", optimizer="sgd", lr=0.01)
def fedbn(norm: str = "norm") -> Algorithm:
    """Norm layers and their statistics stay with the client; an unseen one takes the clients' mean (Li et al. 2021).

    Algorithm 1, layer by layer l: w_l^(k) <- w_l^(k) - lr grad f_k for every client k;   w_l <- sum_k p_k w_l^(k) for
    the layers without normalization; the others keep w_l^(k). Stored: gains, shifts and statistics of normalization.
    Sent: all other parameters, each way. An unseen client is measured with the mean of these over the clients that
    trained; `apiece personalize` serves it the initial ones, which a round's local steps then train.

    Use it where clients' inputs differ in style, as from different sensors, and the model has normalization layers.
    """
    return algorithm(Period(norm, NEVER), name="fedbn")


def centralized() -> Algorithm:
    """Reference: all clients' data in one place, and as many steps as a cohort takes.

    theta <- theta - lr grad f(theta), on batches of all data. Stored: nothing. Sent: nothing but that model, as if
    there were one client. An unseen client uses that model.

    Use it as a reference: what the same data would give in one place.
    """
    return algorithm(name="centralized")
