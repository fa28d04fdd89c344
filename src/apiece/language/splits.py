"""The named splits: `--split "dirichlet(0.1)"` is one of these splitters."""

from __future__ import annotations

from apiece.language.names import Names

NAMED = Names(
    {
        "iid": "apiece.data.partitions.Iid",
        "dirichlet": "apiece.data.partitions.Dirichlet",
        "dirichlet_capped": "apiece.data.partitions.DirichletCapped",
        "dirichlet_refill": "apiece.data.partitions.DirichletRefill",
        "dirichlet_prior": "apiece.data.partitions.dirichlet_prior",
        "classes": "apiece.data.partitions.Classes",
        "shards": "apiece.data.partitions.Shards",
        "quantity": "apiece.data.partitions.Quantity",
        "natural": "apiece.data.ownership.Natural",
        "given": "apiece.data.ownership.Given",
        "saved": "apiece.data.ownership.Saved",
    }
)
