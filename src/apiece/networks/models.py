"""The papers' models, as functions of the shape of a sample and the number of classes.

Each returns an `nn.Sequential` whose last layer is called `head`: `model[:-1]` makes the features, and the pattern
`head.*` matches the classifier. Convolutions are called conv1, conv2 and so on, hidden linear layers fc1, fc2, stages
of blocks layer1, layer2. Layers are initialized as in torch, unless the docstring says otherwise; no model has dropout.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from apiece.errors import UserError

Shape = tuple[int, ...]
Norm = Callable[[int], nn.Module]


def softmax_regression(shape: Shape, classes: int) -> nn.Sequential:
    """Multinomial logistic regression: flatten, linear(C).

    Parameters: (features + 1) C, so 7,850 for 1x28x28 and 10 classes.
    """
    return _classifier({}, math.prod(shape), (), classes)


def mlp(shape: Shape, classes: int, hidden: Sequence[int] = (200, 200)) -> nn.Sequential:
    """A multilayer perceptron: flatten, linear(h) and ReLU for each hidden width h, linear(C).

    The default is the "2NN" of McMahan et al. 2017. Parameters: 199,210 for 1x28x28 and 10 classes.
    UserError if a width is not positive.
    """
    if isinstance(hidden, int):
        raise UserError(f"mlp's hidden is a list of widths, not {hidden}; write for example hidden=[200, 200].")
    if any(width < 1 for width in hidden):
        raise UserError(
            f"mlp's hidden widths must be positive, not {list(hidden)}; write for example hidden=[200, 200]."
        )
    return _classifier({}, math.prod(shape), hidden, classes)


def cnn(shape: Shape, classes: int) -> nn.Sequential:
    """A small network for any image: conv3x3(16), pool, conv3x3(32), pool, linear(64), linear(C); padding 1.

    Ours, for quick runs. Parameters: 13,706 for 1x8x8 and 10 classes. UserError for images smaller than 8x8.
    """
    layers, features = _trunk("cnn", shape, widths=(16, 32), kernel=3, padding=1, smallest=8)
    return _classifier(layers, features, (64,), classes)


def cnn_fedcog(shape: Shape, classes: int) -> nn.Sequential:
    """FedCOG's network for CIFAR-10 and Fashion-MNIST: conv5x5(6), pool, conv5x5(16), pool, linear(120, 84, C).

    Ye et al. 2024, `simplecnn` of the official code. Parameters: 62,006 for 3x32x32 and 44,426 for 1x28x28 (16x4x4
    features), 10 classes. UserError for images smaller than 16x16.
    """
    layers, features = _trunk("cnn_fedcog", shape, widths=(6, 16), kernel=5, smallest=16)
    return _classifier(layers, features, (120, 84), classes)


def cnn_fedcog_cifar100(shape: Shape, classes: int) -> nn.Sequential:
    """FedCOG's network for CIFAR-100: conv3x3(16), pool, conv3x3(32), pool, conv3x3(64), pool, linear(128), linear(C).

    Ye et al. 2024, appendix A.2.1; the text omits the third pool, which the parameter count and the official code have.
    Parameters: 69,380 for 3x32x32 and 100 classes. UserError for images smaller than 22x22.
    """
    layers, features = _trunk("cnn_fedcog_cifar100", shape, widths=(16, 32, 64), kernel=3, smallest=22)
    return _classifier(layers, features, (128,), classes)


def lenet(shape: Shape, classes: int) -> nn.Sequential:
    """PeFLL's LeNet: conv5x5(16), pool, conv5x5(32), pool, linear(120, 84, C); 800 features for 32x32.

    Scott et al. 2024, Table 2.
    Parameters: 121,182 for 3x32x32 and 10 classes. UserError for images smaller than 16x16.
    """
    layers, features = _trunk("lenet", shape, widths=(16, 32), kernel=5, smallest=16)
    return _classifier(layers, features, (120, 84), classes)


def resnet20(shape: Shape, classes: int) -> nn.Sequential:
    """FedALS's ResNet-20: conv3x3(16), three stages of three blocks (16, 32, 64), mean, linear(C); BatchNorm.

    He et al. 2016 (section 4.2), but with a strided 3x3 convolution and BatchNorm as shortcut where the width changes,
    as in FedALS's official code. The stem takes any number of channels; pad MNIST to 32x32.
    Parameters: 292,954 for 3 channels and 10 classes, 650 of them in the head. UserError for images smaller than 8x8.
    """
    channels, _, _ = _image("resnet20", shape, smallest=8)
    layers: dict[str, nn.Module] = {"conv1": nn.Conv2d(channels, 16, 3, padding=1, bias=False)}
    layers |= {"norm1": nn.BatchNorm2d(16), "relu1": nn.ReLU()}
    layers["layer1"] = _stage(16, 16, blocks=3, stride=1, norm=nn.BatchNorm2d, kernel=3)
    layers["layer2"] = _stage(16, 32, blocks=3, stride=2, norm=nn.BatchNorm2d, kernel=3)
    layers["layer3"] = _stage(32, 64, blocks=3, stride=2, norm=nn.BatchNorm2d, kernel=3)
    layers["mean"] = nn.AdaptiveAvgPool2d(1)
    return _classifier(layers, 64, (), classes)


def resnet18_gn(shape: Shape, classes: int, groups: int = 2) -> nn.Sequential:
    """FedInit's ResNet-18: stem conv7x7/2(64) and pool3x3/2, four stages of two blocks, mean, linear(C); GroupNorm.

    Sun et al. 2023 (official simulator): torchvision's ResNet-18 with every norm a GroupNorm of 2 groups, initialized
    like it (convolutions He normal, fan out). Parameters: 11,181,642 for 3 channels and 10 classes (torchvision has
    11,689,512 for 1000 classes, 513,000 of them in its head, where this one has 5,130; GroupNorm has as many as
    BatchNorm). UserError if `groups` does not divide 64.
    """
    if groups < 1 or 64 % groups:
        raise UserError(f"resnet18_gn's groups must divide 64, not {groups}; write for example groups=2.")
    channels, _, _ = _image("resnet18_gn", shape, smallest=1)

    def norm(width: int) -> nn.Module:
        return nn.GroupNorm(groups, width)

    layers: dict[str, nn.Module] = {"conv1": nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)}
    layers |= {"norm1": norm(64), "relu1": nn.ReLU(), "pool1": nn.MaxPool2d(3, stride=2, padding=1)}
    layers["layer1"] = _stage(64, 64, blocks=2, stride=1, norm=norm, kernel=1)
    layers["layer2"] = _stage(64, 128, blocks=2, stride=2, norm=norm, kernel=1)
    layers["layer3"] = _stage(128, 256, blocks=2, stride=2, norm=norm, kernel=1)
    layers["layer4"] = _stage(256, 512, blocks=2, stride=2, norm=norm, kernel=1)
    layers["mean"] = nn.AdaptiveAvgPool2d(1)
    return _he_normal(_classifier(layers, 512, (), classes))


def vgg11(shape: Shape, classes: int) -> nn.Sequential:
    """VGG-11 for 32x32 images: 3x3 convolutions 64, 128, 256 (2), 512 (2), 512 (2), a pool after each width, linear(C).

    Simonyan and Zisserman 2015 (configuration A), without BatchNorm and hidden linear layers: FedInit's paper has
    no more than the name, and its code no such network. Larger images are averaged to 1x1 before the head.
    Initialized as torchvision does it: convolutions He normal (fan out), head normal(0, 0.01), biases 0.
    Parameters: 9,225,610 for 3 channels and 10 classes. UserError below 32x32.
    """
    channels, _, _ = _image("vgg11", shape, smallest=32)
    layers: dict[str, nn.Module] = {}
    for number, width in enumerate((64, 128, 256, 256, 512, 512, 512, 512), start=1):
        layers[f"conv{number}"] = nn.Conv2d(channels, width, 3, padding=1)
        layers |= _pooled(number) if number in (1, 2, 4, 6, 8) else {f"relu{number}": nn.ReLU()}
        channels = width
    layers["mean"] = nn.AdaptiveAvgPool2d(1)
    model = _he_normal(_classifier(layers, 512, (), classes))
    nn.init.normal_(model.get_parameter("head.weight"), 0.0, 0.01)
    nn.init.zeros_(model.get_parameter("head.bias"))
    return model


class Block(nn.Module):
    """Two convolutions beside a shortcut: relu(shortcut(x) + norm2(conv2(relu(norm1(conv1(x)))))) (He et al. 2016).

    The shortcut is the identity, or a convolution of size `kernel` and a norm where width or stride change.
    """

    def __init__(self, channels: int, width: int, stride: int, norm: Norm, kernel: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.norm1 = norm(width)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = norm(width)
        self.shortcut = nn.Identity()
        if channels != width or stride != 1:
            project = nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=False)
            self.shortcut = nn.Sequential(OrderedDict(project=project, norm=norm(width)))
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu1(self.norm1(self.conv1(x)))
        return self.relu2(self.shortcut(x) + self.norm2(self.conv2(inner)))


def _stage(channels: int, width: int, blocks: int, stride: int, norm: Norm, kernel: int) -> nn.Sequential:
    first = Block(channels, width, stride, norm, kernel)
    return nn.Sequential(first, *(Block(width, width, 1, norm, kernel) for _ in range(blocks - 1)))


def _trunk(
    model: str, shape: Shape, widths: Sequence[int], kernel: int, smallest: int, padding: int = 0
) -> tuple[dict[str, nn.Module], int]:
    """Convolution, 2x2 pool and ReLU for each width, and the number of output features."""
    channels, height, across = _image(model, shape, smallest)
    layers: dict[str, nn.Module] = {}
    for number, width in enumerate(widths, start=1):
        layers[f"conv{number}"] = nn.Conv2d(channels, width, kernel, padding=padding)
        layers |= _pooled(number)
        height, across = ((side + 2 * padding - kernel + 1) // 2 for side in (height, across))
        channels = width
    return layers, channels * height * across


def _pooled(number: int) -> dict[str, nn.Module]:
    """2x2 pool and ReLU; the papers' order, ReLU first, gives bitwise the same from four times as many numbers."""
    return {f"pool{number}": nn.MaxPool2d(2), f"relu{number}": nn.ReLU()}


def _classifier(trunk: dict[str, nn.Module], features: int, hidden: Sequence[int], classes: int) -> nn.Sequential:
    """The trunk, then flatten, a linear layer and ReLU for each hidden width, and the head."""
    layers = {**trunk, "flatten": nn.Flatten()}
    for number, width in enumerate(hidden, start=1):
        layers |= {f"fc{number}": nn.Linear(features, width), f"fc{number}_relu": nn.ReLU()}
        features = width
    return nn.Sequential(OrderedDict(layers, head=nn.Linear(features, classes)))


def _he_normal(model: nn.Sequential) -> nn.Sequential:
    """Sets convolutions to normal(0, 2 / fan out), their biases to 0."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return model


def _image(model: str, shape: Shape, smallest: int) -> Shape:
    """The shape (channels, height, width); UserError if it is no image, or a side is below `smallest`."""
    if len(shape) != 3:
        raise UserError(
            f"{model} needs images of shape (channels, height, width), not samples of shape {tuple(shape)}; "
            "take softmax_regression or mlp, or reshape the samples."
        )
    if min(shape[1:]) < smallest:
        raise UserError(
            f"{model} needs images of {smallest}x{smallest} or more, not {shape[1]}x{shape[2]}; "
            "pad them or take a smaller model, such as mlp."
        )
    return shape
