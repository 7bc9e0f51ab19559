"""Losses on records that a forget client must keep, added to its forgetting loss."""

from typing import Literal

from torch import Tensor

from fedunlearn.objectives.interface import ObjectiveInputs
from fedunlearn.objectives.likelihood import IGNORED
from fedunlearn.objectives.reduction import Reduction

RetainTerm = Literal["nll", "kl", "hidden"]


def retain_nll(inputs: ObjectiveInputs, reduction: Reduction) -> Tensor:
    """Cross-entropy ``-log p(y | x)`` on the retain batch (MPU, eq. 102); scalar float32."""
    return inputs.reduce(-inputs.token_log_probs, reduction)


def retain_kl(inputs: ObjectiveInputs, reduction: Reduction) -> Tensor:
    """KL from the starting model at the target tokens; scalar float32, 0 where nothing changed.

    At each position ``sum_v p_ref(v) (log p_ref(v) - log p(v))``, as in the TOFU paper, which
    averages over tokens (``token``). Public frameworks that take the mean over all positions
    let prompts and pads dilute it; here neither takes part.

    Raises:
        ValueError: the starting model's logits are missing.
    """
    if inputs.reference_logits is None:
        raise ValueError("the retain term kl needs the starting model's logits")
    target = inputs.labels != IGNORED
    log_probs = inputs.logits[target].float().log_softmax(-1)
    reference = inputs.reference_logits[target].float().log_softmax(-1)
    return inputs.reduce(reference.exp() * (reference - log_probs), reduction)


def retain_hidden(inputs: ObjectiveInputs) -> Tensor:
    """Mean over real tokens of ``||h - h_ref||^2 / H`` (RMU's second term); scalar float32.

    Raises:
        ValueError: the hidden states of either model are missing.
    """
    hidden, reference, mask = inputs.hidden, inputs.reference_hidden, inputs.token_mask
    if hidden is None or reference is None or mask is None:
        raise ValueError("the retain term hidden needs hidden states of both models")
    distance = (hidden.float() - reference.float()).square().mean(-1)
    return distance[mask].sum() / inputs.denominators.tokens


def retain_loss(term: RetainTerm, inputs: ObjectiveInputs, reduction: Reduction) -> Tensor:
    """Compute the term that is named; ``hidden`` is always a mean over tokens."""
    if term == "nll":
        return retain_nll(inputs, reduction)
    if term == "kl":
        return retain_kl(inputs, reduction)
    return retain_hidden(inputs)
