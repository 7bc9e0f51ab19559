"""Norms of the gradient of one text's loss, weight by weight, for the attack GradNorm."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from fedunlearn.data.encoding import Example, collate
from fedunlearn.models.loading import LoadedModel
from fedunlearn.objectives.likelihood import IGNORED, token_log_probs
from fedunlearn.training.forward import aligned_logits


def gradient_norms(base: LoadedModel, example: Example) -> Tensor:
    """Norms of d(mean loss)/dw for every weight, (weights,) float64; the last target left out.

    The model is as before when this returns: no weight keeps a gradient. Tied weights count once.
    """
    labels = list(example.labels)
    last = max(place for place, label in enumerate(labels) if label != IGNORED)
    labels[last] = IGNORED
    count = sum(label != IGNORED for label in labels)
    weights = list(base.model.parameters())
    if not count:
        return torch.zeros(len(weights), dtype=torch.float64)
    batch = collate([Example(example.input_ids, tuple(labels))], pad_id=0).to(base.device)
    with _differentiable(weights), torch.enable_grad():
        logits, targets = aligned_logits(base.model, batch)
        loss = -token_log_probs(logits, targets).sum() / count
        gradients = torch.autograd.grad(loss, weights, allow_unused=True)
    norms = [one.float().norm() for one in gradients if one is not None]
    return torch.stack(norms).double().cpu()


@contextmanager
def _differentiable(weights: list[torch.nn.Parameter]) -> Iterator[None]:
    before = [weight.requires_grad for weight in weights]
    try:
        for weight in weights:
            weight.requires_grad_(True)
        yield
    finally:
        for weight, flag in zip(weights, before, strict=True):
            weight.requires_grad_(flag)
