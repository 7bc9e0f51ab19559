"""What one forward pass shows of a text: computed once, shared by every metric that needs it."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Observed:
    """The n target tokens of one text.

    Attributes:
        log_probs: (n,) float64, log p of each target given all before it.
        greedy: (n,) bool, whether the target is the most probable token.
        mean: (n,) float64, expectation of log p over the vocabulary; empty where not computed.
        variance: (n,) float64, variance of log p over the vocabulary; likewise.
        text: the target tokens as text, special tokens left out.
        gradient_norms: (weights,) float64, norm of the mean loss's gradient, weight by weight;
            empty where not computed.
        reference_loss: mean loss of another model on the same targets; ``None`` without one.
    """

    log_probs: Tensor
    greedy: Tensor
    mean: Tensor = torch.empty(0)  # noqa: RUF009 - never written to
    variance: Tensor = torch.empty(0)  # noqa: RUF009 - never written to
    text: str = ""
    gradient_norms: Tensor = torch.empty(0)  # noqa: RUF009 - never written to
    reference_loss: float | None = None

    @property
    def count(self) -> int:
        """Number of target tokens."""
        return len(self.log_probs)

    @property
    def loss(self) -> float:
        """Mean over the target tokens, nats a token; 0 without any."""
        return -float(self.log_probs.double().mean()) if self.count else 0.0

    def scored(self, drops_last: bool) -> slice:
        """Tokens that count where the last one, an end-of-sequence token as a rule, may not."""
        return slice(0, max(self.count - 1, 0) if drops_last else self.count)
