"""The paper's numerical routine for the projection's dual: multipliers only rise (appendix B)."""

import torch
from torch import Tensor

from fedunlearn.tensors.dual import Dual

SWEEPS = 500
BISECTIONS = 60


def tolerances(budgets: Tensor) -> Tensor:
    """Return tau = max(1e-4 epsilon, 1e-12), the excess over a budget that is let pass."""
    return (1e-4 * budgets).clamp(min=1e-12)


def solve_bisection(dual: Dual) -> tuple[Tensor, int]:
    """Raise the multiplier of each violated budget, client after client, until all are met.

    For a violated budget the multiplier is doubled until the damage is within it, then bisected
    60 times with the other multipliers held; the end that meets the budget is kept.

    Limitations:
        Exact for one client. With more, a later rise can leave an earlier multiplier higher
        than need be: every budget is met, but the update is not the nearest one.

    Args:
        dual: at least one client; every budget finite and positive.

    Returns:
        Multipliers lambda, shape (m,), float64, and the number of sweeps, at most 500.
    """
    multipliers = torch.zeros_like(dual.budgets)
    limits = dual.budgets + tolerances(dual.budgets)
    for sweep in range(SWEEPS):
        if bool((dual.damages(multipliers) <= limits).all()):
            return multipliers, sweep
        before = multipliers.clone()
        for client in range(len(multipliers)):
            if dual.damage_of(client, multipliers) > limits[client].item():
                multipliers[client] = _raise(dual, client, multipliers)
        if torch.equal(before, multipliers):
            return multipliers, sweep + 1
    return multipliers, SWEEPS


def _raise(dual: Dual, client: int, multipliers: Tensor) -> float:
    trial = multipliers.clone()
    budget = dual.budgets[client].item()

    def exceeds(value: float) -> bool:
        trial[client] = value
        return dual.damage_of(client, trial) > budget

    low = multipliers[client].item()
    high = max(2.0 * low, 1.0)
    while exceeds(high):
        low, high = high, 2.0 * high
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high
