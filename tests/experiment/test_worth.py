"""The rule for compiling, against every run that was measured (docs/benchmarks.md has the seconds)."""

import pytest

from apiece.experiment.worth import Facts, compiling

MOST = 1.1  # of the best lift's time
TWO = {"alike": True, "workers": 2}
IMAGES = {"convolves": True, "vectorized": False, "together": 5, "calls": 2} | TWO


def images(operations, steps, layers, size, outputs, colored=0.0, **changed):
    """The facts of one round of a work of `benchmarks/lengths.py`."""
    known = {"operations": operations, "steps": steps, "layers": layers, "size": size, "wide": False}
    return Facts(**known, outputs=outputs, colored=colored, **IMAGES | changed)


# a round's seconds without compiling, the first one's compiled, a later one's; on an EPYC, and on a Xeon with AVX-512
MEASURED = {
    "softmax regression": (
        Facts(1.5e6, 10_000, 1, 7_850, False, True, **TWO, calls=32, together=32, wide=False),
        (0.86, 7.59, 0.83), (0.63, 27.76, 0.52),
    ),
    "perceptron": (
        Facts(38.2e6, 500, 3, 199_210, False, False, **TWO, calls=2, together=5, wide=False),
        (0.55, 13.46, 0.36), (0.29, 14.95, 0.16),
    ),
    "lenet": (images(215.4e6, 500, 5, 85_822, 360e3), (2.09, 24.10, 1.86), (1.24, 26.94, 0.86)),
    "small lenet": (images(54.1e6, 500, 5, 44_426, 143e3), (1.68, 26.41, 1.03), (0.91, 25.06, 0.35)),
    "pfl": (
        images(1010.1e6, 250, 4, 1_626_442, 790e3, 1.5e6, together=1, calls=50),
        (3.55, 12.04, 3.41), (2.61, 19.07, 2.37),
    ),
    "lenet, batches of 64": (images(430.8e6, 200, 5, 85_822, 721e3), (1.24, 21.27, 1.31), (0.82, 26.03, 0.78)),
    "cnn": (images(214.5e6, 300, 4, 105_866, 602e3), (1.16, 19.80, 1.27), (0.88, 22.16, 0.59)),
    "cnn, batches of 64": (images(428.9e6, 200, 4, 105_866, 1204e3), (1.29, 22.49, 1.68), (1.21, 27.49, 0.95)),
    "colored cnn": (images(336.7e6, 300, 4, 136_874, 786e3, 5.3e6), (1.57, 19.18, 1.87), (1.02, 25.52, 0.89)),
    "colored cnn, batches of 10": (
        images(105.2e6, 300, 4, 136_874, 246e3, 1.7e6), (0.73, 17.16, 0.69), (0.51, 21.02, 0.29),
    ),
    "colored lenet": (images(446.9e6, 500, 5, 121_182, 504e3, 11.3e6), (2.93, 22.66, 2.95), (1.72, 28.96, 1.47)),
    "colored lenet, batches of 10": (
        images(139.7e6, 500, 5, 121_182, 157e3, 3.5e6), (1.38, 19.83, 1.18), (0.69, 22.41, 0.40),
    ),
    "colored small lenet": (images(195.5e6, 500, 5, 62_006, 315e3, 17.6e6), (2.56, 22.71, 3.11), (1.57, 25.43, 0.91)),
    "colored small lenet, batches of 10": (
        images(39.1e6, 500, 5, 62_006, 63e3, 3.5e6), (0.84, 19.41, 0.72), (0.66, 23.00, 0.27),
    ),
    "pfl, batches of 32": (
        images(3232e6, 100, 4, 1_626_442, 2527e3, 4.7e6, together=1, calls=10), None, (2.54, 37.72, 1.98),
    ),
    "colored lenet, batches of 128": (
        images(1788e6, 200, 5, 121_182, 2017e3, 45e6), None, (2.54, 40.63, 2.46),
    ),
    "lenet, batches of 10": (images(67.3e6, 500, 5, 85_822, 113e3), None, (0.86, 18.14, 0.44)),
    "cnn, batches of 10": (images(67e6, 300, 4, 105_866, 188e3), None, (0.46, 22.51, 0.26)),
    "perceptron, batches of 10": (
        Facts(11.9e6, 500, 3, 199_210, False, False, **TWO, calls=2, together=5, wide=False), None, (0.30, 6.23, 0.18),
    ),
    "resnet20": (
        images(12.5e9, 25, 22, 292_666, 9.8e6, together=3, workers=1), (5.3, 172.0, 9.4), (4.44, 149.45, 6.04),
    ),
    "resnet20, batches of 10": (
        images(1.96e9, 50, 22, 292_666, 1.5e6, together=3, calls=4), None, (0.87, 69.77, 1.08),
    ),
    "cnn, batches of 256": (images(1716e6, 100, 4, 105_866, 4817e3), None, (2.08, 37.81, 2.62)),
}  # fmt: skip


@pytest.mark.parametrize("minutes", [1, 10, 60])
@pytest.mark.parametrize("name, wide", [(name, w) for name, of in MEASURED.items() for w in (0, 1) if of[1 + w]])
def test_auto_takes_at_most_a_tenth_more_than_the_best_lift(name, wide, minutes):
    facts, *seconds = MEASURED[name]
    usual, first, each = seconds[wide]
    rounds = round(60 * minutes / usual)
    apart, compiled = rounds * usual, first + (rounds - 1) * each
    pays = compiling(facts._replace(steps=facts.steps * rounds, wide=bool(wide))).pays
    assert (compiled if pays else apart) <= MOST * min(apart, compiled)


@pytest.mark.parametrize(
    "change, why",
    [({"alike": False}, "differ"), ({"size": 1 << 24}, "parameters"), ({"layers": 6}, "layers"),
     ({"workers": 8}, "idle"), ({"steps": 1}, "save"), ({"colored": 5e6}, "three channels"),
     ({"outputs": 2e6}, "put out"), ({"together": 10}, "put out")],
)  # fmt: skip
def test_what_is_not_compiled_however_long(change, why):
    facts = MEASURED["lenet"][0]._replace(steps=1e7)
    assert compiling(facts).pays and not (found := compiling(facts._replace(**change))).pays and why in found.why
