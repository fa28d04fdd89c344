"""What an algorithm cannot be is refused in a sentence: by what it says, the expressions."""

from __future__ import annotations

import pytest

from apiece.config.assemble import chosen_algorithm
from apiece.errors import UserError

SAID = {
    "would push away": "ditto(-1)",
    "give lr of 0 or more, and 1 step or more": "ditto(lr=-0.1); ditto(steps=0)",
    "would climb": "fedalt(inner_personal=-1)",
    "use round or batch": "pfedme(restart=often)",
    "lam and step_size above 0": "pfedme(-1); pfedme(steps=0)",
    "alpha from 0 to 1, rule adaptive or fixed": "apfl(1.5); apfl(rule=often)",
    "use first_order or hessian_free": "per_fedavg(variant=second_order)",
    "batches parts or whole": "per_fedavg(batches=thirds)",
    "count is 1 or more, .* weight within 0 and 1": "knn_per(0); knn_per(weight=1.2)",
    "takes epochs or steps, not both": "fine_tune(1, 2)",
    "0 or more epochs or steps": "fine_tune(-1); fine_tune(1, lr=-0.1); per_fedavg(-0.1)",
    "would step away": "scaffold_p(outer_personal=-1)",
    "pFedMe replaces the gradient": "pfedme + scaffold; pfedme + fedreg",
    "same piece twice": "per_fedavg + fine_tune",
    "divides by alpha": "feddyn(0)",
    "clients or model": "feddyn(0.1, median)",
    "more than 0": "fedcm(0); fedexp(0)",
    "would descend before it takes a gradient": "fedsam(-0.1)",
    "last or average": "fedexp(evaluate=best)",
    "nesterov": "fedavgm(form=polyak)",
    "classes that no client has": "vhl + fedgen",
    "writes one for each client": "fedgen + pefll",
    "2 or more": "vhl(batch=1); fedgen(batch=1)",
    "gamma is above 0": "fedreg(gamma=0)",
    "is no weight": "fedcog(kd_weight=auto); fedcog(kd_weight=-1)",
    "complementary or uniform": "fedcog(targets=all)",
    "samples and batch of 1 or more, .* of 0 or more": "fedcog(samples=0); fedcog(lr=-1)",
    "source must be inputs or network": "fedcog(source=gan); fedcog(source=3)",
    "network has no argument 'depth'": "fedcog(source=network(depth=3))",
    r"network\(latent=0, width=128\) is no network": "fedcog(source=network(latent=0))",
    "network's latent must be a whole number": "fedcog(source=network(latent=wide))",
    "is unknown": "pefll(embedding=vit); pefll(size=XL); pfedhn(size=XL)",
    "would let the networks grow": "pefll(lambda_h=-1); pefll(lambda_v=-1)",
}


# a sentence catches a check that is gone, or that another comes before
@pytest.mark.parametrize("said", SAID)
def test_refused(said):
    for text in SAID[said].split("; "):
        with pytest.raises(UserError, match=said):
            chosen_algorithm(text)
