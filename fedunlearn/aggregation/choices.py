"""What a user chooses about a merge."""

import math
from dataclasses import field
from typing import Any, Literal

from fedunlearn.aggregation.epsilon import Epsilon, check_epsilon
from fedunlearn.settings import settings


@settings
class MergeSettings:
    """One merge.

    Attributes:
        method: name of a merge method, e.g. ``firm``.
        options: the method's own hyperparameters, e.g. ``density`` for ``ties``.
        gamma: scale of the raw merge (eq. 5); 0 leaves the base model as it is.
        alpha: fraction of Fisher entries kept (eq. 3), in (0, 1]; 0.1 in the paper.
        eps0: stabiliser of eq. 3 and eq. 4; 1e-8 in the paper.
        epsilon: retention budget (eq. 7); infinity switches the projection off.
        solver: ``newton`` is exact for any number of retain clients; ``bisection`` is the
            paper's increase-only routine.
    """

    method: str = "firm"
    options: dict[str, Any] = field(default_factory=dict)
    gamma: float = 1.0
    alpha: float = 0.1
    eps0: float = 1e-8
    epsilon: Epsilon = math.inf
    solver: Literal["newton", "bisection"] = "newton"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.gamma) and self.gamma >= 0):
            raise ValueError(f"gamma must be a finite number >= 0, got {self.gamma}")
        if not 0 < self.alpha <= 1:
            raise ValueError(f"alpha must be in (0, 1], got {self.alpha}")
        if not (math.isfinite(self.eps0) and self.eps0 > 0):
            raise ValueError(f"eps0 must be a finite number > 0, got {self.eps0}")
        check_epsilon(self.epsilon)
