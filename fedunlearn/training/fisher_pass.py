"""The diagonal empirical Fisher of a client's data (FIRM, eq. 1 and appendix C)."""

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Literal

import torch
from torch import Tensor

from fedunlearn.data.encoding import Example, collate
from fedunlearn.errors import RunError
from fedunlearn.objectives.likelihood import mean_token_loss
from fedunlearn.settings import settings
from fedunlearn.training.forward import aligned_logits


@settings
class FisherSettings:
    """How much data the Fisher estimate sees.

    Attributes:
        num_sequences: sequences, in the data's order, cycling when there are fewer; 20 in the
            paper.
        max_length: tokens a sequence is truncated to; 512 in the paper.
        targets: ``sequence`` averages the loss over every non-padding target token, as the
            paper; ``answer`` over the answer's tokens only.
    """

    num_sequences: int = 20
    max_length: int = 512
    targets: Literal["sequence", "answer"] = "sequence"

    def __post_init__(self) -> None:
        if self.num_sequences < 1 or self.max_length < 2:
            raise ValueError("num_sequences must be >= 1 and max_length >= 2")


def estimate_fisher(
    model: torch.nn.Module,
    examples: Sequence[Example],
    names: Sequence[str],
    *,
    chosen: FisherSettings,
) -> dict[str, Tensor]:
    """Estimate eq. 1 at the weights ``model`` holds now, which must be the reference weights.

    For each sequence on its own: the mean loss over its target tokens, its gradient, squared;
    the squares are averaged over sequences. Squaring comes before averaging. Only the named
    weights get a gradient, and no ``.grad`` buffer is made for any.

    Args:
        model: without adapters, in evaluation mode.
        examples: the client's data, in its order.
        names: base parameter names of the adapted weights.
        chosen: how many sequences, and which tokens count.

    Returns:
        Name to bfloat16 tensor of the weight's shape, non-negative, on the CPU; accumulated in
        float32 and rounded once.

    Raises:
        RunError: a gradient is not finite; the text names the weight and the sequence.
    """
    parameters = dict(model.named_parameters())
    weights = {name: parameters[name] for name in names}
    sums = {name: torch.zeros_like(weight, dtype=torch.float32) for name, weight in weights.items()}
    device = next(model.parameters()).device
    try:
        for weight in weights.values():
            weight.requires_grad_(True)
        for number, example in enumerate(islice(cycle(examples), chosen.num_sequences)):
            batch = collate([_with_targets(example, chosen)], pad_id=0).to(device)
            loss = mean_token_loss(*aligned_logits(model, batch))
            gradients = torch.autograd.grad(loss, list(weights.values()))
            for name, gradient in zip(weights, gradients, strict=True):
                sums[name] += gradient.float().square()
                if not bool(sums[name].isfinite().all()):
                    raise RunError(f"Fisher of {name} is not finite at sequence {number}")
    finally:
        for weight in weights.values():
            weight.requires_grad_(False)
    return {
        name: (total / chosen.num_sequences).to(torch.bfloat16).cpu()
        for name, total in sums.items()
    }


def _with_targets(example: Example, chosen: FisherSettings) -> Example:
    ids = example.input_ids[: chosen.max_length]
    if chosen.targets == "sequence":
        return Example(ids, ids)
    return Example(ids, example.labels[: chosen.max_length])
