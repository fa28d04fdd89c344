"""The named optimizers: `--optimizer` names the clients' optimizer, `--server` the server's."""

from __future__ import annotations

from apiece.language.names import Names

CLIENTS = {
    "adam": "apiece.algebra.optim.adam",
    "adamw": "apiece.algebra.optim.adamw",
    "sgd": "apiece.algebra.optim.Sgd",
}
SERVERS = {
    "adagrad": "apiece.algebra.server_optim.adagrad",
    "adam": "apiece.algebra.server_optim.Adam",
    "average": "apiece.algebra.server_optim.Descent",
    "momentum": "apiece.algebra.server_optim.Momentum",
    "yogi": "apiece.algebra.server_optim.Yogi",
}
NAMED = {"optimizer": Names(SERVERS | CLIENTS), "server": Names(CLIENTS | SERVERS)}  # adam is one on either side
