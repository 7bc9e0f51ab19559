"""Log-probabilities of target tokens and sequences, shared by the objectives.

All functions take logits (B, T, V) and labels (B, T) that are aligned for prediction, with -100
where there is no target. Computed in float32 whatever the logits' dtype.
"""

from torch import Tensor

IGNORED = -100


def token_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """Log p of each target token, (B, T) float32, exactly 0 where there is no target.

    The label -100 never indexes the vocabulary.
    """
    target = labels != IGNORED
    safe = labels.masked_fill(~target, 0)
    log_probs = logits.float().log_softmax(-1).gather(-1, safe.unsqueeze(-1)).squeeze(-1)
    return log_probs.masked_fill(~target, 0.0)


def sequence_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """Sum over the target tokens of each sequence, (B,) float32: log p(y | x)."""
    return token_log_probs(logits, labels).sum(-1)
