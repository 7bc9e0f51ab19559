"""What the sums of a loss are divided by: sequences, target tokens, or real tokens."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedunlearn.objectives.likelihood import IGNORED

Reduction = Literal["sequence", "token"]
"""``sequence``: sums over the tokens of each sequence, averaged over the sequences, as appendix
B.3 of the MPU paper writes its expectations. ``token``: one mean over all target tokens."""


@dataclass(frozen=True)
class Counts:
    """The denominators of one optimiser step.

    A loss is a sum divided by one of these. Each part of a step sums over its own sequences and
    divides by the counts of the whole step, so the parts add up to the loss of one large batch.

    Attributes:
        sequences: number of sequences.
        targets: tokens with a label, the first of a sequence left out, as nothing predicts it.
        tokens: real tokens, prompts included.
    """

    sequences: int
    targets: int
    tokens: int

    @property
    def predicted(self) -> int:
        """Real tokens that have one before them to be predicted from."""
        return self.tokens - self.sequences


def count(labels: Tensor, token_mask: Tensor | None) -> Counts:
    """Count what one batch holds.

    Args:
        labels: (B, T) int64, aligned for prediction, -100 where there is no target.
        token_mask: (B, T + 1) bool, true on real tokens; ``None`` counts no tokens.
    """
    tokens = 0 if token_mask is None else int(token_mask.sum())
    return Counts(len(labels), int((labels != IGNORED).sum()), tokens)
