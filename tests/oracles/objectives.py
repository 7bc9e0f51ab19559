"""Every objective again, in float64, one token after another: slow, and plain to read.

Each function takes the objective's settings and its inputs and returns a scalar that autograd can
go through. Weights that take no gradient are Python floats here.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from fedunlearn.objectives import ObjectiveInputs


def answers(inputs: ObjectiveInputs) -> Iterator[list[Tensor]]:
    """Log-probabilities of the target tokens, sequence by sequence."""
    for row, labels in zip(inputs.logits.double(), inputs.labels, strict=True):
        yield [
            scores[label] - scores.exp().sum().log()
            for scores, label in zip(row, labels.tolist(), strict=True)
            if label != -100
        ]


def mean_of_tokens(per_sequence: list[list[Tensor]], reduction: str) -> Tensor:
    total = sum(sum(tokens, torch.zeros(()).double()) for tokens in per_sequence)
    tokens = sum(len(tokens) for tokens in per_sequence)
    return total / (len(per_sequence) if reduction == "sequence" else tokens)


def grad_ascent(chosen: Any, inputs: ObjectiveInputs) -> Tensor:
    return mean_of_tokens(list(answers(inputs)), chosen.reduction)


def weighted(chosen: Any, inputs: ObjectiveInputs, weight: Callable[[float], float]) -> Tensor:
    terms = [[weight(math.exp(t.item())) * t for t in tokens] for tokens in answers(inputs)]
    return mean_of_tokens(terms, chosen.reduction)


def satimp(chosen: Any, inputs: ObjectiveInputs) -> Tensor:
    return weighted(chosen, inputs, lambda p: p**chosen.beta1 * (1 - p) ** chosen.beta2)


def wga(chosen: Any, inputs: ObjectiveInputs) -> Tensor:
    return weighted(chosen, inputs, lambda p: p**chosen.beta)


def mean(values: list[Tensor]) -> Tensor:
    return sum(values, torch.zeros(()).double()) / len(values)


def minus_log_sigmoid(x: Tensor) -> Tensor:
    return (1 + (-x).exp()).log()


def log_ratios(inputs: ObjectiveInputs) -> list[Tensor]:
    assert inputs.reference_log_probs is not None
    pairs = zip(answers(inputs), inputs.reference_log_probs.double(), strict=True)
    return [sum(tokens, torch.zeros(()).double()) - reference for tokens, reference in pairs]


def npo(chosen: Any, inputs: ObjectiveInputs) -> Tensor:
    terms = [minus_log_sigmoid(-chosen.beta * ratio) for ratio in log_ratios(inputs)]
    return 2 / chosen.beta * mean(terms)


def dpo(chosen: Any, inputs: ObjectiveInputs) -> Tensor:
    assert inputs.preferred is not None
    pairs = zip(log_ratios(inputs.preferred), log_ratios(inputs), strict=True)
    loss = mean([minus_log_sigmoid(chosen.beta * won - chosen.beta * lost) for won, lost in pairs])
    return 2 / chosen.beta * loss if chosen.two_over_beta else loss


def simnpo(chosen: Any, inputs: ObjectiveInputs) -> Tensor:
    terms = []
    for tokens in answers(inputs):
        length_normalised = -sum(tokens, torch.zeros(()).double()) / len(tokens)
        if chosen.margin == "inside":
            terms.append(minus_log_sigmoid(chosen.beta * (length_normalised - chosen.gamma)))
        else:
            terms.append(minus_log_sigmoid(chosen.beta * length_normalised - chosen.gamma))
    return 2 / chosen.beta * mean(terms)


def undial(chosen: Any, inputs: ObjectiveInputs) -> Tensor:
    assert inputs.reference_logits is not None
    assert inputs.token_mask is not None
    terms = []
    for b, labels in enumerate(inputs.labels.tolist()):
        terms.append([])
        for t, label in enumerate(labels):
            real = bool(inputs.token_mask[b, t] and inputs.token_mask[b, t + 1])
            if not real or (label == -100 and chosen.positions == "answer"):
                continue
            target = inputs.reference_logits[b, t].double().clone()
            if label != -100:
                target[label] -= chosen.strength
            student = inputs.logits[b, t].double()
            log_probs = student - student.exp().sum().log()
            terms[-1].append(-(target.exp() / target.exp().sum() * log_probs).sum())
    return mean_of_tokens(terms, chosen.reduction)


def tokens_of(hidden: Tensor, mask: Tensor) -> Iterator[Tensor]:
    for row, real in zip(hidden.double(), mask, strict=True):
        yield from (state for state, one in zip(row, real, strict=True) if one)


def rmu(chosen: Any, inputs: ObjectiveInputs) -> Tensor:
    assert inputs.hidden is not None
    assert inputs.token_mask is not None
    states = tokens_of(inputs.hidden, inputs.token_mask)
    return mean([((state - chosen.target.double()) ** 2).mean() for state in states])


def retain_nll(_: Any, inputs: ObjectiveInputs) -> Tensor:
    return -mean_of_tokens(list(answers(inputs)), "token")


def retain(chosen: Any, inputs: ObjectiveInputs) -> Tensor:
    """The term on retained data."""
    if chosen.retain_term == "nll":
        return -mean_of_tokens(list(answers(inputs)), chosen.retain_reduction)
    if chosen.retain_term == "hidden":
        assert inputs.hidden is not None
        assert inputs.reference_hidden is not None
        assert inputs.token_mask is not None
        pairs = zip(
            tokens_of(inputs.hidden, inputs.token_mask),
            tokens_of(inputs.reference_hidden, inputs.token_mask),
            strict=True,
        )
        return mean([((one - other) ** 2).mean() for one, other in pairs])
    assert inputs.reference_logits is not None
    terms = []
    for b, labels in enumerate(inputs.labels.tolist()):
        terms.append([])
        for t in (t for t, label in enumerate(labels) if label != -100):
            p, q = (x[b, t].double().softmax(-1) for x in (inputs.reference_logits, inputs.logits))
            terms[-1].append((p * (p.log() - q.log())).sum())
    return mean_of_tokens(terms, chosen.retain_reduction)


ORACLES: dict[str, Callable[[Any, ObjectiveInputs], Tensor]] = {
    "dpo": dpo,
    "grad_ascent": grad_ascent,
    "grad_diff": grad_ascent,
    "npo": npo,
    "retain_nll": retain_nll,
    "rmu": rmu,
    "satimp": satimp,
    "simnpo": simnpo,
    "undial": undial,
    "wga": wga,
}


def loss(name: str, chosen: Any, inputs: ObjectiveInputs) -> Tensor:
    """The whole objective of a registry entry, float64."""
    main = ORACLES[name](chosen, inputs)
    if getattr(chosen, "retain_term", None) is None:
        return main if name == "retain_nll" else chosen.forget_weight * main
    assert inputs.retain is not None
    return chosen.forget_weight * main + chosen.retain_weight * retain(chosen, inputs.retain)
