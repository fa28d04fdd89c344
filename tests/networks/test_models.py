"""Models: parameter counts derived by hand, shapes, gradients, determinism, refusals."""

from __future__ import annotations

import inspect
from itertools import pairwise

import pytest
import torch
from torch import nn

from apiece.errors import UserError
from apiece.networks import models

torch.set_num_threads(1)
CIFAR, MNIST, PADDED, DIGITS = (3, 32, 32), (1, 28, 28), (1, 32, 32), (1, 8, 8)


def conv(into: int, out: int, kernel: int) -> int:
    return into * out * kernel * kernel + out


def linear(into: int, out: int) -> int:
    return into * out + out


def block(into: int, out: int, shortcut: int = 0) -> int:
    """Convolutions without bias, each with a scale and a shift a channel; `shortcut` is the projection's kernel."""
    return (9 * into + 2) * out + (9 * out + 2) * out + ((shortcut**2 * into + 2) * out if shortcut else 0)


LENET_TAIL = linear(120, 84) + linear(84, 10)
COUNTS = [
    (models.softmax_regression, MNIST, 10, linear(784, 10), 7_850),
    (models.mlp, MNIST, 10, linear(784, 200) + linear(200, 200) + linear(200, 10), 199_210),  # McMahan et al.: 199,210
    (models.cnn, DIGITS, 10, conv(1, 16, 3) + conv(16, 32, 3) + linear(32 * 2 * 2, 64) + linear(64, 10), 13_706),
    # 28 -5+1-> 24 /2-> 12 -5+1-> 8 /2-> 4; 32 -> 28 -> 14 -> 10 -> 5
    (models.cnn_fedcog, MNIST, 10, conv(1, 6, 5) + conv(6, 16, 5) + linear(16 * 4 * 4, 120) + LENET_TAIL, 44_426),
    (models.cnn_fedcog, CIFAR, 10, conv(3, 6, 5) + conv(6, 16, 5) + linear(16 * 5 * 5, 120) + LENET_TAIL, 62_006),
    # 32 -> 30 -> 15 -> 13 -> 6 -> 4 -> 2; the paper's A.4.3 counts 69,380
    (
        models.cnn_fedcog_cifar100,
        CIFAR,
        100,
        conv(3, 16, 3) + conv(16, 32, 3) + conv(32, 64, 3) + linear(64 * 2 * 2, 128) + linear(128, 100),
        69_380,
    ),
    (models.lenet, CIFAR, 10, conv(3, 16, 5) + conv(16, 32, 5) + linear(800, 120) + LENET_TAIL, 121_182),
    (
        models.lenet,
        PADDED,
        62,
        conv(1, 16, 5) + conv(16, 32, 5) + linear(800, 120) + linear(120, 84) + linear(84, 62),
        124_802,
    ),
    # body 292,304 + head 650: these reproduce the traffic of FedALS's Table 2
    (
        models.resnet20,
        CIFAR,
        10,
        (9 * 3 + 2) * 16
        + 3 * block(16, 16)
        + block(16, 32, 3)
        + 2 * block(32, 32)
        + block(32, 64, 3)
        + 2 * block(64, 64)
        + linear(64, 10),
        292_954,
    ),
    (models.resnet20, PADDED, 10, 292_954 - 2 * 9 * 16, 292_666),  # two input channels fewer in the stem
    # torchvision publishes 11,689,512 for 1000 classes; a GroupNorm has as many parameters as a BatchNorm
    (
        models.resnet18_gn,
        CIFAR,
        10,
        (49 * 3 + 2) * 64
        + 2 * block(64, 64)
        + block(64, 128, 1)
        + block(128, 128)
        + block(128, 256, 1)
        + block(256, 256)
        + block(256, 512, 1)
        + block(512, 512)
        + linear(512, 10),
        11_689_512 - linear(512, 1000) + linear(512, 10),
    ),
    # torchvision publishes 132,863,336 with its classifier of 25088-4096-4096-1000
    (
        models.vgg11,
        CIFAR,
        10,
        sum(conv(a, b, 3) for a, b in [(3, 64), (64, 128), (128, 256), (256, 256), (256, 512)])
        + 3 * conv(512, 512, 3)
        + linear(512, 10),
        132_863_336 - linear(25088, 4096) - linear(4096, 4096) - linear(4096, 1000) + linear(512, 10),
    ),
]
CASES = [(build, shape, classes) for build, shape, classes, _, _ in COUNTS]
SMALLEST = {"cnn": 8, "cnn_fedcog": 16, "cnn_fedcog_cifar100": 22, "lenet": 16, "resnet20": 8, "resnet18_gn": 1,
    "vgg11": 32}  # fmt: skip


def names(case: tuple) -> str:
    return f"{case[0].__name__}-{'x'.join(map(str, case[1]))}"


@pytest.mark.parametrize(("build", "shape", "classes", "derived", "published"), COUNTS, ids=map(names, COUNTS))
def test_parameter_count(build, shape, classes, derived, published):
    assert sum(p.numel() for p in build(shape, classes).parameters()) == derived == published


@pytest.mark.parametrize(("build", "shape", "classes"), CASES, ids=map(names, CASES))
def test_scores_gradients_and_features(build, shape, classes):
    torch.manual_seed(0)
    model = build(shape, classes)
    x = torch.randn(2, *shape)
    scores = model(x)
    assert scores.shape == (2, classes)
    nn.functional.cross_entropy(scores, torch.tensor([0, 1])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name
    model.eval()
    assert torch.equal(model[-1](model[:-1](x)), model(x))
    assert [name for name, _ in model.named_parameters()][-2:] == ["head.weight", "head.bias"]


@pytest.mark.parametrize(("build", "shape", "classes"), CASES, ids=map(names, CASES))
def test_the_seed_alone_decides_the_start(build, shape, classes):
    def start(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        return list(build(shape, classes).parameters())

    first, again, other = start(1), start(1), start(2)
    assert all(map(torch.equal, first, again))
    assert not all(map(torch.equal, first, other))


def test_nothing_is_random_in_a_forward_pass():
    for build, shape, classes in CASES:
        assert not [m for m in build(shape, classes).modules() if "Dropout" in type(m).__name__]


@pytest.mark.parametrize(
    "build", [models.lenet, models.cnn_fedcog, models.cnn_fedcog_cifar100, models.cnn, models.vgg11]
)
def test_a_pool_before_its_relu_is_bitwise_a_relu_before_its_pool(build):
    """Papers write the latter."""
    torch.manual_seed(0)
    model = build(CIFAR, 10)
    written = nn.Sequential(*model)
    for place, (pool, relu) in enumerate(pairwise(model)):
        if isinstance(pool, nn.MaxPool2d):
            assert isinstance(relu, nn.ReLU)
            written[place], written[place + 1] = relu, pool
    assert list(map(type, written)) != list(map(type, model))
    x, y = torch.randn(4, *CIFAR), torch.arange(4)

    def made(by: nn.Module) -> list[torch.Tensor]:
        at = x.clone().requires_grad_()
        scores = by(at)
        return [scores, *torch.autograd.grad(nn.functional.cross_entropy(scores, y), [at, *model.parameters()])]

    assert all(map(torch.equal, made(model), made(written)))


def test_names_are_readable():
    assert [name for name, _ in models.lenet(CIFAR, 10).named_parameters() if name.endswith("weight")] == [
        *("conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight", "head.weight")
    ]
    assert [name for name, _ in models.mlp((64,), 10, hidden=[5]).named_children()] == [
        "flatten",
        "fc1",
        "fc1_relu",
        "head",
    ]
    assert "conv8.weight" in dict(models.vgg11(CIFAR, 10).named_parameters())


def test_resnet20_has_the_20_layers_of_fedals():
    """A layer begins at each convolution outside the shortcuts, and at the head; all else belongs to the layer before.

    So there are 20 layers: the stem, 18 convolutions in blocks, the head; the first 19 hold 292,304 parameters.
    """
    layers: list[int] = []
    for name, parameter in models.resnet20(CIFAR, 10).named_parameters():
        if "conv" in name or name == "head.weight":
            layers.append(0)
        layers[-1] += parameter.numel()
    assert len(layers) == 20
    assert layers[-1] == 650
    assert sum(layers[:-1]) == 292_304


def test_resnet18_gn_keeps_no_running_statistics_and_all_its_norms_have_the_groups():
    model = models.resnet18_gn(CIFAR, 10)
    norms = [m for m in model.modules() if isinstance(m, nn.GroupNorm)]
    assert not list(model.buffers())
    assert len(norms) == 20  # the stem's, two in each of 8 blocks, one in each of 3 shortcuts
    assert {m.num_groups for m in norms} == {2}


def test_stages_halve_the_image():
    x = torch.randn(2, *CIFAR)
    sides = {"layer1": 8, "layer2": 4, "layer3": 2, "layer4": 1}  # after the stem's 32 -> 16 -> 8
    for name, layer in models.resnet18_gn(CIFAR, 10).named_children():
        x = layer(x)
        assert x.shape[-1] == sides.get(name, x.shape[-1])


def test_a_block_whose_convolutions_are_zero_is_its_shortcut():
    block = models.Block(4, 4, 1, nn.BatchNorm2d, kernel=3)
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 4, 5, 5)
    assert torch.equal(block(x), x.relu())


def test_initialization_follows_torchvision_where_it_is_said():
    torch.manual_seed(0)
    resnet, vgg = models.resnet18_gn(CIFAR, 10), models.vgg11(CIFAR, 10)
    weight = resnet.get_parameter("layer4.1.conv2.weight")  # fan out 512 * 9
    assert weight.std().item() == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.01)
    assert vgg.get_parameter("head.weight").std().item() == pytest.approx(0.01, rel=0.05)
    assert not vgg.get_parameter("conv3.bias").any()


@pytest.mark.parametrize("name", ["softmax_regression", "mlp", "cnn"])
def test_digits(name):
    assert getattr(models, name)(DIGITS, 10)(torch.zeros(3, *DIGITS)).shape == (3, 10)


@pytest.mark.parametrize("name", ["softmax_regression", "mlp"])
def test_flat_features(name):
    assert getattr(models, name)((60,), 4)(torch.zeros(3, 60)).shape == (3, 4)


@pytest.mark.parametrize(("name", "smallest"), SMALLEST.items())
def test_the_smallest_image_fits_and_a_smaller_one_is_refused(name, smallest):
    build = getattr(models, name)
    assert build((1, smallest, smallest + 3), 10)(torch.zeros(2, 1, smallest, smallest + 3)).shape == (2, 10)
    if smallest > 1:
        with pytest.raises(
            UserError, match=f"^{name} needs images of {smallest}x{smallest} or more, not {smallest - 1}x40"
        ):
            build((1, smallest - 1, 40), 10)


@pytest.mark.parametrize("name", SMALLEST)
def test_features_are_not_images(name):
    with pytest.raises(
        UserError, match=rf"^{name} needs images .* not samples of shape \(64,\); take softmax_regression"
    ):
        getattr(models, name)((64,), 10)


def test_options_are_checked():
    with pytest.raises(UserError, match=r"must be positive, not \[200, 0\]"):
        models.mlp(MNIST, 10, hidden=(200, 0))
    with pytest.raises(UserError, match="a list of widths, not 200"):
        models.mlp(MNIST, 10, hidden=200)  # type: ignore
    with pytest.raises(UserError, match="must divide 64, not 3"):
        models.resnet18_gn(CIFAR, 10, groups=3)


def test_every_public_model_is_tested_and_documented():
    public = {n: f for n, f in vars(models).items() if inspect.isfunction(f) and f.__module__ == models.__name__}
    public = {n: f for n, f in public.items() if not n.startswith("_")}
    assert set(public) == {build.__name__ for build, _, _ in CASES}
    for function in public.values():
        assert "Parameters: " in str(function.__doc__)
        assert list(inspect.signature(function).parameters)[:2] == ["shape", "classes"]
