"""A classifier with twice as many classes: the additional ones are scored in training and never predicted."""

from __future__ import annotations

import copy

from torch import Tensor, nn

from apiece.errors import UserError


class WiderHead(nn.Linear):
    """A linear layer with twice the rows, new ones drawn as torch does: all scores in training, else half."""

    def __init__(self, head: nn.Linear):
        super().__init__(head.in_features, 2 * head.out_features, head.bias is not None)
        for mine, theirs in zip(self.parameters(), head.parameters(), strict=True):
            mine.data[: head.out_features] = theirs.data

    def forward(self, input: Tensor) -> Tensor:
        scores = super().forward(input)
        return scores if self.training else scores[..., : self.out_features // 2]


def widened(module: nn.Module) -> nn.Module:
    """A copy of the module with a wider last layer; raises UserError where that layer is not linear, or is tied."""
    module = copy.deepcopy(module)
    named = module.named_parameters(remove_duplicate=False)
    weights = [(name, p) for name, p in named if p.requires_grad and p.dim() > 1]
    path = weights[-1][0].rpartition(".")[0] if weights else ""
    if tied := next((name for name, p in weights[:-1] if p is weights[-1][1]), None):
        raise UserError(
            f"the classifier is widened, and {weights[-1][0]} is tied to {tied}: end the model in a Linear of its own."
        )
    head, (owner, _, name) = module.get_submodule(path), path.rpartition(".")
    if not isinstance(head, nn.Linear):
        raise UserError(f"the classifier is widened, and the model's last layer with weights is {head}: end in Linear.")
    if not path:
        return WiderHead(head)
    setattr(module.get_submodule(owner), name, WiderHead(head))
    return module
