"""The named algorithms: `--algorithm "scaffold + relaxed_init(0.1)"` is the sum of what these return.

Each has the defaults of its paper, or of the comparison that its docstring names. Where one is a piece, the piece says
its equation, what it stores and sends, and how a client never seen is served; the others say so here. This module
imports nothing heavy, so that listing costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from apiece.language.grammar import Call
from apiece.language.papers import paper

if TYPE_CHECKING:
    from apiece.algebra.composition import Algorithm

__all__ = [
    "centralised",
    "apfl",
    "class_mask",
    "ditto",
    "fedadagrad",
    "fedadam",
    "fedals",
    "fedalt",
    "fedavg",
    "fedavg_p",
    "fedavgm",
    "fedbn",
    "fedcm",
    "fedcog",
    "feddecorr",
    "feddyn",
    "fedexp",
    "fedgen",
    "fedinit",
    "fednova",
    "fedper",
    "fedprox",
    "fedreg",
    "fedrep",
    "fedsam",
    "fedsim",
    "fedyogi",
    "fine_tune",
    "knn_per",
    "lg_fedavg",
    "local",
    "moon",
    "pefll",
    "per_fedavg",
    "period",
    "pfedhn",
    "pfedme",
    "relaxed_init",
    "scaffold",
    "scaffold_p",
    "vhl",
]


@paper("its Algorithm 1", weighting="samples", optimizer="sgd")
def fedavg() -> Algorithm:
    """Federated averaging (McMahan et al. 2017).

    w_i <- w_i - lr grad f_i(w_i), K times from w_i = w;   w <- sum_i p_i w_i, by the run's weights (its Algorithm 1).
    Stored: nothing. Sent: w down and w_i up. A client never seen: the global model.
    """
    from apiece.algebra.composition import algorithm

    return algorithm(name="fedavg")


@paper("its experiments", weighting="samples", optimizer="sgd")
def fedprox(mu: float = 0.01, centre: str = "start") -> Algorithm:
    """Local training held near its start, or the server's model: centre=start|server (Li et al. 2020); mu=0.01 as in
    FedCOG's tables.
    """
    from apiece.algebra.composition import algorithm
    from apiece.pieces.proximal import Proximal

    return algorithm(Proximal(mu, centre), name=f"fedprox(mu={mu:g}{_unless('centre', centre, 'start')})")


@paper("its Algorithm 1", weighting="uniform", optimizer="sgd")
def scaffold(control: str = "mean_gradient", init_control: str = "zero") -> Algorithm:
    """Control variates against client drift: control=mean_gradient|difference, at first init_control=zero|grad
    (Karimireddy et al. 2020).
    """
    from apiece.algebra.composition import algorithm
    from apiece.errors import UserError
    from apiece.pieces.first_gradients import FirstGradients
    from apiece.pieces.scaffold import Scaffold

    if init_control not in ("zero", "grad"):
        raise UserError(f"scaffold(init_control={init_control}) is unknown: use zero or grad.")
    first = [FirstGradients()] if init_control == "grad" else []
    named = _unless("control", control, "mean_gradient") + _unless("init_control", init_control, "zero")
    return algorithm(Scaffold(control), *first, name=f"scaffold({named[2:]})" if named else "scaffold")


FEDINIT = paper(
    "section 5.1 and the authors' code",
    weighting="uniform",
    optimizer="sgd(weight_decay=0.001)",
    lr=0.1,
    schedule="exponential(0.998)",
    clip=10.0,
)


@FEDINIT
def relaxed_init(beta: float = 0.1, aggregate: str = "paper", first: str = "initial") -> Algorithm:
    """Start beyond the server's model, added to anything: aggregate=paper|delta, first=initial|current (Sun et al.
    2023).
    """
    from apiece.algebra.composition import algorithm
    from apiece.pieces.relaxed_init import RelaxedInit

    return algorithm(RelaxedInit(beta, aggregate, first), name=f"relaxed_init(beta={beta:g})")


@FEDINIT
def fedinit(beta: float = 0.1, aggregate: str = "paper", first: str = "initial") -> Algorithm:
    """FedInit: federated averaging with relaxed initialisation (Sun et al. 2023)."""
    from dataclasses import replace

    return replace(relaxed_init(beta, aggregate, first), name=f"fedinit(beta={beta:g})")


@paper("its experiments", weighting="samples", optimizer="sgd(momentum=0.9, weight_decay=0.0001)")
def fedals(
    alpha: int = 10, head: str | int | None = None, cohort: str = "redrawn", phase: str = "last_step"
) -> Algorithm:
    """The body is averaged alpha times less often than the head; head: a pattern, or L leading layers of body;
    cohort=held|redrawn, phase=last_step|first_step (Gholami and Seferoglu 2024).

    Algorithm 1, h_k the head and phi_k the body of client k, tau the local steps of a round, t = 0, 1, ... the round:

        (h_k, phi_k) <- (h_k, phi_k) - eta grad F_k(h_k, phi_k)     tau times
        h_k <- mean_j h_j                                           in every round
        phi_k <- mean_j phi_j                                       where (t + 1) mod alpha = 0

    Both are averaged after the local steps and each by its own condition, where lines 6 to 9 print an `else` that never
    comes true. phase=first_step is the authors' code, whose iteration s averages a group of period H where s mod H = 0:
    the first of all local steps is a round of its own, after which both are averaged, and phi_k then where t mod alpha
    = 0. alpha=1 is federated averaging. More groups: `fedals(1) + period(conv1, 10) + period(conv2, 5)`, as the code
    has a period for each. Not in the paper: where some are asked, these take the server's head and
    go on from their own body if they trained in this interval. Stored: phi_k and the body as it was sent, between two
    of its averagings. Sent: the head in every round, the body once an interval. A client never seen: the global model.
    """
    from apiece.algebra.composition import Cohort, Period, Phase, algorithm
    from apiece.errors import UserError

    if alpha < 1 or cohort not in ("held", "redrawn") or phase not in ("last_step", "first_step"):
        raise UserError(
            f"fedals(alpha={alpha}, cohort={cohort}, phase={phase}) is impossible: alpha is 1 or more, cohort held or "
            "redrawn, phase last_step or first_step."
        )
    body = head if isinstance(head, int) else "body" if head is None else f"!{head}"
    parts = [Period(body, alpha)] if alpha > 1 else []
    named = _unless("cohort", cohort, "redrawn") + _unless("phase", phase, "last_step")
    return algorithm(*parts, Cohort(cohort), Phase(phase), name=f"fedals(alpha={alpha}{named})")


def period(which: str | int = "body", every: int | float = 10) -> Algorithm:
    """These parameters are averaged every so many rounds (inf: never), added to anything: a term for each group, as in
    the code of FedALS (Gholami and Seferoglu 2024).

    theta_k <- mean_j theta_j where (t + 1) mod every = 0, t = 0, 1, ... the round, for the parameters that `which`
    selects: head, body, norm, a pattern of names, or leading layers; of one that several terms select the longest
    period holds. Stored and sent, and a client never seen: as under `fedals`; where it is never averaged, as under
    `fedavg_p`.
    """
    from apiece.algebra.composition import Period, algorithm

    return algorithm(Period(which, every), name=f"period({which}, {every})")


@paper("its Algorithm 1", weighting="uniform", optimizer="sgd")
def fedavg_p(
    personal: str | None = None, outer_shared: float = 1.0, outer_personal: float = 1.0, inner_personal: float = 1.0
) -> Algorithm:
    """Shared and personal parameters with inner and outer steps; inner_personal is a factor of the step size (Chen et
    al. 2023).

    Algorithm 1, x shared and y_i personal, gamma the inner steps and eta the outer ones, S the m clients asked:

        x_{k+1,i} <- x_{k,i} - gamma_x grad_x F_i(x_{k,i}, y_{k,i})     line 6, K times from x_{0,i} = x, y_{0,i} = y_i
        y_{k+1,i} <- y_{k,i} - gamma_y grad_y F_i(x_{k,i}, y_{k,i})     line 7, at the same point and batch
        y_i <- y_i + eta_y (y_{K,i} - y_i)                              line 9
        x <- x + (eta_x / m) sum_{i in S} (x_{K,i} - x)                 line 11

    gamma_x is the run's step size and gamma_y = inner_personal gamma_x, eta_x is outer_shared and eta_y outer_personal;
    line 11 has the run's weights (the paper's: weighting=uniform). Stored: y_i. Sent: x down and x_{K,i} up. A client
    never seen is measured with x and the mean of all y_i; `apiece personalize` serves it x and the initial y, which
    a round's local steps then train.
    """
    from apiece.algebra.composition import Period, Server, StepSize, algorithm
    from apiece.algebra.periods import NEVER
    from apiece.algebra.server_optim import Descent
    from apiece.pieces.outer_step import OuterStep

    which = personal or "head"
    parts: list[Any] = [Period(which, NEVER)]
    if inner_personal != 1.0:
        parts.append(StepSize(which, inner_personal))
    if outer_personal != 1.0:
        parts.append(OuterStep(outer_personal))
    if outer_shared != 1.0:
        parts.append(Server(Descent(outer_shared)))
    return algorithm(*parts, name="fedavg_p")


@paper("its Algorithm 2", weighting="uniform", optimizer="sgd")
def scaffold_p(
    personal: str | None = None,
    outer_shared: float = 1.0,
    outer_personal: float = 1.0,
    inner_personal: float = 1.0,
    control: str = "mean_gradient",
    init_control: str = "zero",
) -> Algorithm:
    """FedAvg-P with control variates on the shared parameters only, at first init_control=zero|grad (Chen et al. 2023).

    Algorithm 2, which is Algorithm 1 (`fedavg_p`), lines 7, 9 and the mean of x in line 12 as there, but for

        x_{k+1,i} <- x_{k,i} - gamma_x (grad_x F_i(x_{k,i}, y_{k,i}) - c_i + c)               line 6
        c_i <- (1/K) sum_k grad_x F_i(x_{k,i}, y_{k,i})                                       line 10
        c <- c + (1/N) sum_{i in S} (c_i' - c_i)                                              line 13

    c_i' being the new c_i and N all clients; those of y stay 0. init_control=zero: c_i and c are 0 at first.
    init_control=grad: they begin as the paper's proofs have them, c_i = grad_x f_i(x, y_i) and c = mean_i c_i, by a
    first round that asks every client and moves no model (`FirstGradients`). control=difference: line 10 by the
    difference of the models, as SCAFFOLD's line 12 (`Scaffold`). Stored: y_i and c_i, and c on the server. Sent: x and
    c down, x_{K,i} and c_i' - c_i up. A client never seen: as under `fedavg_p`.
    """
    from dataclasses import replace

    shared = scaffold(control, init_control)
    both = shared + fedavg_p(personal, outer_shared, outer_personal, inner_personal)
    return replace(both, name=shared.name.replace("scaffold", "scaffold_p"))


@paper("the authors' code on CIFAR-10", weighting="uniform", optimizer="sgd(weight_decay=0.001)", lr=0.1, clip=10.0)
def feddyn(alpha: float = 0.1, mean: str = "clients") -> Algorithm:
    """Clients' optima are made to agree with the pooled one; mean=clients|model (Acar et al. 2021); alpha=0.1 as in
    FedInit's tables, in the authors' code 0.01.
    """
    from apiece.algebra.composition import algorithm
    from apiece.pieces.feddyn import FedDyn

    return algorithm(FedDyn(alpha, mean), name=f"feddyn(alpha={alpha:g})")


@paper(
    "FedInit's comparison",
    weighting="uniform",
    optimizer="sgd(weight_decay=0.001)",
    lr=0.1,
    schedule="exponential(0.998)",
)
def fedcm(alpha: float = 0.1) -> Algorithm:
    """Client-level momentum: alpha of a client's gradient, the rest the server's last direction (Xu et al. 2021)."""
    from apiece.algebra.composition import algorithm
    from apiece.pieces.fedcm import FedCM

    return algorithm(FedCM(alpha), name=f"fedcm(alpha={alpha:g})")


@paper("its Algorithm 1", weighting="uniform", optimizer="sgd")
def fedsam(rho: float = 0.1) -> Algorithm:
    """Gradients taken where the loss is worst within rho, two passes a step (Qu et al. 2022); rho as FedInit has it."""
    from apiece.algebra.composition import algorithm
    from apiece.pieces.fedsam import FedSAM

    return algorithm(FedSAM(rho), name=f"fedsam(rho={rho:g})")


@paper("the authors' code", weighting="samples", optimizer="sgd(momentum=0.9, weight_decay=0.0001)", lr=0.02)
def fednova() -> Algorithm:
    """Normalised averaging of unequal local work, under the run's momentum (Wang et al. 2020)."""
    from apiece.algebra.composition import algorithm
    from apiece.pieces.fednova import FedNova

    return algorithm(FedNova(), name="fednova")


@paper(
    "the authors' code on CIFAR-10",
    weighting="samples",
    optimizer="sgd(weight_decay=0.0001)",
    lr=0.01,
    schedule="exponential(0.998)",
    clip=10.0,
)
def fedexp(epsilon: float = 1e-3, evaluate: str = "last") -> Algorithm:
    """The server's step extrapolates where updates disagree; the model that is measured: evaluate=last, or average, the
    mean of the last two (Jhunjhunwala et al. 2023).
    """
    from apiece.algebra.composition import algorithm
    from apiece.errors import UserError
    from apiece.pieces.fedexp import FedExP
    from apiece.pieces.iterates import AveragedIterates

    measured = {"last": (), "average": (AveragedIterates(),)}
    if evaluate not in measured:
        raise UserError(f"fedexp(evaluate={evaluate}) is unknown: use {' or '.join(measured)}.")
    named = f"fedexp(evaluate={evaluate})" if measured[evaluate] else "fedexp"
    return algorithm(FedExP(epsilon), *measured[evaluate], name=named)


@paper("its equation for FedAvgM", weighting="samples", optimizer="sgd")
def fedavgm(beta: float = 0.9, lr: float = 1.0, form: str = "hsu") -> Algorithm:
    """Momentum on the server (Hsu et al. 2019), or another code's form of it: form=hsu|mean|normalised|nesterov|exp."""
    from apiece.algebra import server_optim
    from apiece.algebra.composition import Server, algorithm
    from apiece.errors import UserError

    forms: dict[str, Any] = {
        "hsu": server_optim.Momentum,
        "mean": server_optim.AveragedMomentum,
        "normalised": server_optim.NormalisedMomentum,
        "nesterov": server_optim.Nesterov,
        "exp": server_optim.Momentum,  # FedExP's code, d <- g + 0.9 d, is Hsu's
    }
    if form not in forms:
        raise UserError(f"fedavgm(form={form}) is unknown: use {', '.join(forms)}.")
    named = "" if form == "hsu" else f", form={form}"
    return algorithm(Server(forms[form](beta, lr)), name=f"fedavgm(beta={beta:g}{named})")


@paper("its Algorithm 2", weighting="uniform", optimizer="sgd")
def fedadam(
    lr: float = 0.1, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3, initial: float | None = None
) -> Algorithm:
    """Adam on the server, not bias-corrected; initial: its second moment at first, tau squared (Reddi et al. 2021)."""
    from apiece.algebra.composition import Server, algorithm
    from apiece.language import optimisers

    return algorithm(Server(optimisers.adam(lr, beta1, beta2, tau, initial)), name=f"fedadam(lr={lr:g})")


@paper("its Algorithm 2", weighting="uniform", optimizer="sgd")
def fedyogi(
    lr: float = 0.1, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3, initial: float | None = None
) -> Algorithm:
    """Yogi on the server: a second moment that moves additively (Reddi et al. 2021)."""
    from apiece.algebra.composition import Server, algorithm
    from apiece.language import optimisers

    return algorithm(Server(optimisers.yogi(lr, beta1, beta2, tau, initial)), name=f"fedyogi(lr={lr:g})")


@paper("its Algorithm 2", weighting="uniform", optimizer="sgd")
def fedadagrad(lr: float = 0.1, beta1: float = 0.0, tau: float = 1e-3, initial: float | None = None) -> Algorithm:
    """Adagrad on the server: a second moment that is summed (Reddi et al. 2021)."""
    from apiece.algebra.composition import Server, algorithm
    from apiece.language import optimisers

    return algorithm(Server(optimisers.adagrad(lr, beta1, tau, initial)), name=f"fedadagrad(lr={lr:g})")


@paper(
    "section 6.1 and the authors' code", weighting="samples", optimizer="sgd(momentum=0.9, weight_decay=1e-05)", lr=0.01
)
def fedcog(
    kd_weight: float | str = 0.01,
    dis: float = 0.1,
    samples: int = 256,
    steps: int = 100,
    lr: float = 0.01,
    batch: int = 64,
    wait: int = 0,
    targets: str = "complementary",
    source: str | Call = "inputs",
    temperature: float = 1.0,
    shuffle: str = "once",
) -> Algorithm:
    """Inputs made from the shared model complement a client's data: kd_weight=counts, targets=uniform, source=inputs
    or network(latent=256, width=128), shuffle=once|each_pass (Ye et al. 2024).
    """
    from apiece.algebra.composition import algorithm
    from apiece.language.expression import build_term
    from apiece.pieces.fedcog import FedCOG
    from apiece.pieces.generation import Inputs, Network

    term = source if isinstance(source, Call) else Call(source)
    made = build_term(term, {"inputs": Inputs, "network": Network})
    piece = FedCOG(kd_weight, dis, samples, steps, lr, batch, wait, targets, made, temperature, shuffle)
    named = _unless("temperature", temperature, 1.0) + _unless("shuffle", shuffle, "once")
    return algorithm(piece, name=f"fedcog(kd_weight={kd_weight}{named})")


@paper(
    "its experiments and the authors' code",
    weighting="samples",
    optimizer="sgd(momentum=0.9, weight_decay=1e-05)",
    lr=0.01,
)
def moon(mu: float = 1.0, temperature: float = 0.5) -> Algorithm:
    """Features drawn to the global model's, away from the client's last model's (Li et al. 2021)."""
    from apiece.algebra.composition import algorithm
    from apiece.pieces.moon import MOON

    return algorithm(MOON(mu, temperature), name=f"moon(mu={mu:g})")


@paper("the authors' code on CIFAR-10", weighting="samples", optimizer="sgd(momentum=0.9, weight_decay=1e-05)", lr=0.01)
def feddecorr(beta: float = 0.01) -> Algorithm:
    """Features of a batch kept from being correlated (Shi et al. 2023); beta=0.01 as in FedCOG's tables, in the
    authors' code 0.1.
    """
    from apiece.algebra.composition import algorithm
    from apiece.pieces.feddecorr import FedDecorr

    return algorithm(FedDecorr(beta), name=f"feddecorr(beta={beta:g})")


@paper("the authors' code", weighting="uniform", optimizer="sgd")
def fedreg(
    gamma: float = 0.5, steps: int = 10, pseudo: float = 0.1, perturbed: float = 0.001, batches: int = 100
) -> Algorithm:
    """Steps without what forgets the global model, told by samples made from it, `batches` a round (Xu et al. 2022)."""
    from apiece.algebra.composition import algorithm
    from apiece.pieces.fedreg import FedReg

    return algorithm(FedReg(gamma, steps, pseudo, perturbed, batches), name=f"fedreg(gamma={gamma:g})")


@paper("the authors' code", weighting="samples", optimizer="sgd", lr=0.01)
def fedgen(
    alpha: float = 10.0,
    beta: float = 10.0,
    decay: float = 0.98,
    steps: int = 20,
    batch: int = 32,
    noise: int = 32,
    hidden: int = 256,
    epochs: int = 50,
    lr: float = 3e-4,
    weight_decay: float = 1e-2,
    diversity: float = 1.0,
) -> Algorithm:
    """Features of a class, made on the server by a network that clients' classifiers teach there; weights of 10 ask for
    small local steps, lr=0.01 or less (Zhu et al. 2021).
    """
    from apiece.algebra.composition import algorithm
    from apiece.pieces.fedgen import FedGen

    server = (decay, batch, noise, hidden, epochs, lr, weight_decay, diversity)
    piece = FedGen(*server, alpha=alpha, beta=beta, steps=steps)
    return algorithm(piece, name=f"fedgen(alpha={alpha:g}, beta={beta:g})")


@paper(
    "the authors' code on CIFAR-10", weighting="samples", optimizer="sgd(momentum=0.9, weight_decay=0.0001)", lr=0.01
)
def vhl(
    alpha: float = 1.0, align: float = 1.0, among: float = 0.1, epochs: int = 5, samples: int = 2000, batch: int = 128
) -> Algorithm:
    """Shared noise is learnt as classes of its own, and features aligned with it for `epochs` (Tang et al. 2022)."""
    from apiece.algebra.composition import algorithm
    from apiece.pieces.vhl import VHL

    return algorithm(VHL(alpha, align, among, epochs, samples, batch), name=f"vhl(align={align:g})")


def local(epochs: int = 20, batch: int = 32) -> Algorithm:
    """Every client alone: all is personal and nothing is sent; a new client trains for `epochs` passes.

    theta_i <- theta_i - lr grad f_i(theta_i), from round to round. Stored: theta_i. Sent: nothing. A client never seen:
    `epochs` passes of the same from the initial model, in batches of `batch` (`Newcomer`).
    """
    from apiece.algebra.composition import algorithm

    return algorithm(*_personal("*", epochs, batch), name="local")


@paper("its Algorithms 1 and 2", weighting="samples", optimizer="sgd")
def fedper(personal: str | None = None, epochs: int = 20, batch: int = 32) -> Algorithm:
    """The head stays with the client; a new client trains one for `epochs` passes (Arivazhagan et al. 2019).

    Its Algorithms 1 and 2, W_B the base layers and W_{P_j} client j's personal ones, trained at once:
    (W_B, W_{P_j}) <- (W_B, W_{P_j}) - lr grad f_j;   W_B <- sum_j gamma_j W_{B,j}, gamma_j = n_j / n being the run's
    weights. Stored: W_{P_j}. Sent: W_B each way. A client never seen: W_B, on which it trains a head of its own, the
    initial one at first (`Newcomer`).
    """
    from apiece.algebra.composition import algorithm

    return algorithm(*_personal(personal or "head", epochs, batch), name="fedper")


@paper("the authors' code on CIFAR-10", weighting="uniform", optimizer="sgd(momentum=0.5)", lr=0.1)
def lg_fedavg(personal: str | int | None = None, epochs: int = 20, batch: int = 32) -> Algorithm:
    """The body stays with the client, the head is shared; personal: a pattern or leading layers (Liang et al. 2020).

    Its Algorithm 1, l_i client i's body, which makes local representations, and g the shared head:
    (l_i, g_i) <- (l_i, g_i) - lr grad f_i;   g <- sum_i p_i g_i, without its auxiliary losses on the representations.
    Stored: l_i. Sent: g each way. A client never seen: g, under which it trains a body of its own, the initial one at
    first (`Newcomer`); the paper takes an ensemble of the clients' bodies. The authors' code starts from a trained
    FedAvg model (`--init`), shares the last two layers and weighs clients alike (weighting=uniform).
    """
    from apiece.algebra.composition import algorithm

    return algorithm(*_personal("body" if personal is None else personal, epochs, batch), name="lg_fedavg")


@paper("the authors' code on digits", weighting="uniform", optimizer="sgd", lr=0.01)
def fedbn(norm: str = "norm") -> Algorithm:
    """Norm layers and their statistics stay with the client; a new one takes the clients' mean (Li et al. 2021).

    Its Algorithm 1, layer by layer l: w_l^(k) <- w_l^(k) - lr grad f_k for every client k;   w_l <- sum_k p_k w_l^(k)
    for the layers without normalisation, and w_l^(k) stays for the others. Stored: these, gains, shifts and statistics.
    Sent: all else, each way. A client never seen is measured with their mean over the clients that trained;
    `apiece personalize` serves it the initial ones, which a round's local steps then train.
    """
    from apiece.algebra.composition import Period, algorithm
    from apiece.algebra.periods import NEVER

    return algorithm(Period(norm, NEVER), name="fedbn")


@paper("the authors' code on EMNIST", weighting="samples", optimizer="sgd", lr=0.01)
def fedsim(personal: str | None = None, epochs: int = 20, batch: int = 32, inner_personal: float = 1.0) -> Algorithm:
    """Shared and personal parameters trained at once: FedAvg-P with outer steps of 1 (Pillutla et al. 2022).

    FedSim: u shared and v_i personal, both moved in each step from the same point and batch:
    v_i <- v_i - gamma_v grad_v F_i(u_i, v_i);   u_i <- u_i - gamma_u grad_u F_i(u_i, v_i);   u <- sum_i p_i u_i.
    gamma_u is the run's step size and gamma_v = inner_personal gamma_u, for a new client too. Stored: v_i. Sent: u each
    way. A client never seen: u, on which it trains a v of its own (`Newcomer`).
    """
    from apiece.algebra.composition import algorithm

    named = "fedsim" if inner_personal == 1.0 else f"fedsim(inner_personal={inner_personal:g})"
    return algorithm(*_personal(personal or "head", epochs, batch, inner_personal), name=named)


@paper("the authors' code on EMNIST", weighting="samples", optimizer="sgd", lr=0.01)
def fedalt(
    personal: str | None = None, first: float = 0.5, epochs: int = 20, batch: int = 32, inner_personal: float = 1.0
) -> Algorithm:
    """Personal parameters trained for `first` steps (below 1: that share), then the shared (Pillutla et al. 2022).

    FedAlt: u shared and v_i personal, one after the other: v_i <- v_i - gamma_v grad_v F_i(u, v_i) for
    `first` steps, then u_i <- u_i - gamma_u grad_u F_i(u_i, v_i) at the new v_i;   u <- sum_i p_i u_i. Both halves have
    the run's optimiser, and share its steps, where the authors' code gives each as many. gamma_u is the run's step size
    and gamma_v = inner_personal gamma_u, for a new client too. Stored: v_i. Sent: u each way. A client never seen: u,
    on which it trains a v of its own (`Newcomer`).
    """
    from apiece.algebra.composition import Alternate, algorithm

    which = personal or "head"
    parts = _personal(which, epochs, batch, inner_personal)
    named = f"first={first:g}{_unless('inner_personal', inner_personal, 1.0)}"
    return algorithm(*parts, Alternate(which, first), name=f"fedalt({named})")


@paper("its Algorithm 1", weighting="uniform", optimizer="sgd")
def fedrep(
    head: str | None = None, first: float = 5 / 6, epochs: int = 20, batch: int = 32, inner_personal: float = 1.0
) -> Algorithm:
    """The head trained for `first` steps (below 1: that share; 5 of 6), then the shared body (Collins et al. 2021).

    Its Algorithm 1, phi the shared representation and h_i client i's head: h_i <- h_i - alpha grad_h f_i(h_i, phi) for
    `first` steps, then phi_i <- phi_i - alpha grad_phi f_i(h_i, phi_i) for the others, of which the paper's algorithm
    has one (5 passes for the head and one for the body in PeFLL's comparison, A.2);   phi <- sum_i p_i phi_i, by the
    run's weights (the paper's: weighting=uniform). The head's alpha is inner_personal times the run's step size, for a
    new client too. Stored: h_i. Sent: phi each way. A client never seen: phi, on which it trains a head of its own
    (`Newcomer`).
    """
    from dataclasses import replace

    named = f"first={first:g}{_unless('inner_personal', inner_personal, 1.0)}"
    return replace(fedalt(head, first, epochs, batch, inner_personal), name=f"fedrep({named})")


def _personal(which: str | int, epochs: int, batch: int, inner: float = 1.0) -> list[Any]:
    from apiece.algebra.composition import Period, StepSize
    from apiece.algebra.periods import NEVER
    from apiece.pieces.newcomer import Newcomer

    sizes = [StepSize(which, inner)] if inner != 1.0 else []
    return [Period(which, NEVER), Newcomer(epochs, batch), *sizes]


@paper("the authors' code on Fashion-MNIST", weighting="uniform", optimizer="sgd", lr=0.05)
def ditto(lam: float = 1.0, lr: float | None = None, steps: int | None = None) -> Algorithm:
    """A second model on every client, held near the global one by lam; its own lr and steps, or the round's (Li et al.
    2021).
    """
    from apiece.algebra.composition import algorithm
    from apiece.pieces.ditto import Ditto

    named = f"lam={lam:g}{_unless('lr', lr, None)}{_unless('steps', steps, None)}"
    return algorithm(Ditto(lam, lr, steps), name=f"ditto({named})")


@paper("its Algorithm 1", weighting="uniform", optimizer="sgd")
def apfl(alpha: float = 0.5, rule: str = "adaptive") -> Algorithm:
    """The global model mixed with alpha of the client's own, learnt or not: rule=adaptive|fixed (Deng et al. 2020)."""
    from apiece.algebra.composition import algorithm
    from apiece.pieces.apfl import Mixture

    return algorithm(Mixture(alpha, rule), name=f"apfl(alpha={alpha:g})")


@paper("the authors' code on MNIST", weighting="samples", optimizer="sgd", lr=0.005)
def pfedme(
    lam: float = 15.0,
    steps: int = 5,
    step_size: float = 0.01,
    beta: float = 1.0,
    epochs: int = 20,
    batch: int = 32,
    restart: str = "round",
) -> Algorithm:
    """Personal models by Moreau envelopes: `steps` of step_size a batch, beta the server's step, theta begun anew at w
    each restart=round|batch (Dinh et al. 2020).
    """
    from apiece.algebra.composition import Server, algorithm
    from apiece.algebra.server_optim import Descent
    from apiece.pieces.pfedme import MoreauEnvelope

    parts: list[Any] = [MoreauEnvelope(lam, steps, step_size, epochs, batch, restart)]
    if beta != 1.0:
        parts.append(Server(Descent(beta)))
    return algorithm(*parts, name=f"pfedme(lam={lam:g}{_unless('restart', restart, 'round')})")


@paper("its Algorithm 1", weighting="uniform", optimizer="sgd")
def per_fedavg(
    alpha: float = 0.01,
    variant: str = "first_order",
    delta: float = 1e-3,
    epochs: int = 1,
    batch: int = 32,
    batches: str = "parts",
) -> Algorithm:
    """A model that is good after `epochs` passes at alpha: variant=first_order|hessian_free; a step's gradients on
    batches=parts of one, or whole ones, each its own (Fallah et al. 2020).
    """
    from apiece.algebra.composition import algorithm
    from apiece.algebra.optim import Sgd
    from apiece.errors import UserError
    from apiece.pieces.fine_tune import FineTune
    from apiece.pieces.per_fedavg import FirstOrder, HessianFree, MetaStep

    variants = {"first_order": FirstOrder(), "hessian_free": HessianFree(delta)}
    if variant not in variants:
        raise UserError(f"per_fedavg(variant={variant}) is unknown: use {' or '.join(variants)}.")
    adapt = FineTune(epochs, batch=batch, lr=alpha, optimiser=Sgd())
    piece = MetaStep(alpha, variants[variant], batches)
    named = f"alpha={alpha:g}, variant={variant}{_unless('batches', batches, 'parts')}"
    return algorithm(piece, adapt, name=f"per_fedavg({named})")


@paper("the authors' code on CIFAR-10", weighting="samples", optimizer="sgd(weight_decay=0.0005)", lr=0.05)
def knn_per(count: int = 10, scale: float = 100.0, weight: float | None = None) -> Algorithm:
    """The global model mixed with its nearest training samples; weight=none: each client's own (Marfoq et al. 2022);
    scale=100 as in PeFLL's comparison.
    """
    from apiece.algebra.composition import algorithm
    from apiece.pieces.knn_per import Neighbours

    return algorithm(Neighbours(count, scale, weight), name=f"knn_per(count={count})")


def fine_tune(
    epochs: int | None = None, steps: int | None = None, batch: int = 32, lr: float | None = None
) -> Algorithm:
    """Train on before predicting, on anything: epochs (1) or steps, at the round's step size (Wang et al. 2019)."""
    from apiece.algebra.composition import algorithm
    from apiece.errors import UserError
    from apiece.pieces.fine_tune import FineTune

    if epochs is not None and steps is not None:
        raise UserError("fine_tune takes epochs or steps, not both.")
    piece = FineTune(epochs if epochs is not None else int(steps is None), steps or 0, batch, lr)
    return algorithm(piece, name=f"fine_tune(epochs={piece.epochs})" if steps is None else f"fine_tune(steps={steps})")


@paper(
    "appendix A.2 and the authors' code",
    weighting="uniform",
    optimizer="sgd(momentum=0.9, weight_decay=5e-05)",
    lr=0.002,
    clip=50.0,
)
def pefll(
    embedding: str = "auto",
    size: str = "M",
    lr: float | None = None,
    clip: float | None = 50.0,
    lambda_h: float = 0.0,
    lambda_v: float = 0.0,
    momentum: float = 0.9,
    weight_decay: float = 5e-5,
    descriptor: str = "first",
    server: str = "adam",
) -> Algorithm:
    """Models written by a hypernetwork from each client's data: embedding=linear|mlp|cnn, size=S|M|L,
    descriptor=first|batch|all, server=adam|sgd at lr=none: 0.0002 or 1 (Scott et al. 2024).
    """
    from apiece.algebra.composition import Client, algorithm
    from apiece.algebra.optim import Sgd
    from apiece.pieces.pefll import Pefll

    recipe = Pefll(embedding, size, lr, clip, lambda_h, lambda_v, descriptor, server)
    named = _unless("descriptor", descriptor, "first") + _unless("server", server, "adam")
    return algorithm(recipe, Client(Sgd(momentum, weight_decay)), name=f"pefll({named[2:]})" if named else "pefll")


@paper("the authors' code", weighting="uniform", optimizer="sgd(momentum=0.9, weight_decay=5e-05)", lr=0.005, clip=50.0)
def pfedhn(
    size: str = "M",
    lr: float = 1e-2,
    clip: float = 50.0,
    decay: float = 1e-3,
    momentum: float = 0.9,
    weight_decay: float = 5e-5,
) -> Algorithm:
    """Models written by a hypernetwork from a learned descriptor of each client: size=S|M|L (Shamsian et al. 2021)."""
    from apiece.algebra.composition import Client, algorithm
    from apiece.algebra.optim import Sgd
    from apiece.pieces.pfedhn import Pfedhn

    recipe = Pfedhn(size, lr, 0.9, decay, clip)
    return algorithm(recipe, Client(Sgd(momentum, weight_decay)), name="pfedhn")


def _unless(name: str, value: Any, usual: Any) -> str:
    """An argument as a name's text says it: nothing where it has its usual value."""
    return "" if value == usual else f", {name}={value}"


def class_mask() -> Algorithm:
    """Only classes that the client has training samples of are predicted, added to anything (Scott et al. 2024)."""
    from apiece.algebra.composition import algorithm
    from apiece.pieces.class_mask import ClassMask

    return algorithm(ClassMask(), name="class_mask")


def centralised() -> Algorithm:
    """Reference: everybody's data in one place, as many steps as a cohort takes.

    theta <- theta - lr grad f(theta), on batches of the union. Stored: nothing. Sent: nothing but that model, as if
    there were one client. A client never seen: that model.
    """
    from apiece.algebra.composition import algorithm

    return algorithm(name="centralised")
