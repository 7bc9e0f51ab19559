"""The retention projection by means that share nothing with the package's solver."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[np.float64]


def nearest_update(base: Array, fishers: Array, budgets: Array) -> Array:
    """Solve eq. 7 in the primal by sequential quadratic programming.

    For at most a dozen coordinates and budgets within a few orders of the base's damages; good
    to about 1e-6 of the base's norm.
    """
    unit = np.linalg.norm(base)
    scaled = fishers * unit**2 / budgets[:, None]
    start = base / unit
    shrunk = start / np.sqrt(max(1.0, (0.5 * scaled @ start**2).max()))
    found = minimize(
        lambda x: 0.5 * ((x - start) ** 2).sum(),
        shrunk,
        jac=lambda x: x - start,
        constraints={
            "type": "ineq",
            "fun": lambda x: 1.0 - 0.5 * scaled @ x**2,
            "jac": lambda x: -scaled * x,
        },
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 1000},
    )
    return np.asarray(found.x) * unit


def kkt_residuals(
    base: Array, fishers: Array, budgets: Array, multipliers: Sequence[float]
) -> dict[str, float]:
    """Eq. 16-19 in budget units at ``X = base / (1 + sum lambda F)``; 0 is optimal."""
    values = np.asarray(multipliers)
    shrink = 1.0 + values @ fishers
    update = base / shrink
    ratio = 0.5 * fishers @ update**2 / budgets - 1.0
    stationarity = np.abs(update - base + (values @ fishers) * update)
    return {
        "stationarity": float(stationarity.max() / np.abs(base).max()),
        "feasibility": float(max(0.0, ratio.max())),
        "dual feasibility": float(max(0.0, -values.min())),
        "complementarity": float(np.abs(np.where(values != 0.0, ratio, 0.0)).max()),
    }
