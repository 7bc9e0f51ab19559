"""How copies of a model are perturbed and disguised before they are published."""

import math
from collections.abc import Sequence
from typing import Literal

import torch

from fedunlearn.settings import settings

Symmetry = Literal["full", "paper", "permutations", "none"]
PublishDtype = Literal["float32", "bfloat16"]
DTYPES: dict[PublishDtype, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@settings
class PrivacySettings:
    """Noise calibrated by the Gaussian mechanism (MPU, eq. 28) instead of by ``kappa``.

    ``sigma = sensitivity * sqrt(2 ln(1.25 / delta)) / epsilon`` for the least noised copy. The
    guarantee is for one copy of one round, seen alone: ``docs/MPU.md`` says what that leaves open.

    Attributes:
        epsilon: privacy budget, in (0, 1]; the bound is not proven beyond 1.
        delta: probability of a breach, in (0, 1).
        sensitivity: largest Euclidean distance between the weights that two neighbouring data
            sets lead to, over all weights together; from how the model was trained.
    """

    epsilon: float
    delta: float
    sensitivity: float

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= 1:
            raise ValueError(f"epsilon must be in (0, 1], got {self.epsilon}")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must be in (0, 1), got {self.delta}")
        if not (self.sensitivity > 0 and math.isfinite(self.sensitivity)):
            raise ValueError(f"sensitivity must be a positive number, got {self.sensitivity}")

    @property
    def sigma(self) -> float:
        """Standard deviation that the mechanism asks for, in the unit of the weights."""
        return self.sensitivity * math.sqrt(2 * math.log(1.25 / self.delta)) / self.epsilon


@settings
class CopySettings:
    """Copies of one round: how many, how noisy, how disguised, in which precision.

    Attributes:
        m: number of copies, at least 2: the noise of a single one could not cancel.
        kappa: noise per block over the root mean square of its task vector (eq. 3); 0: no noise.
        alphas: noise scale of each copy (eq. 5), positive; ``None``: ``1 + (k - 1) / (m - 1)``.
        symmetry: ``full``: permutations of FFN channels and heads, a transform for queries and keys
            and another for values and outputs; ``paper``: permutations of FFN channels and one
            transform per key-value head for all four; ``permutations``: of FFN channels and heads
            only, the one choice that AdamW commutes with; ``none``: copies are noised only.
        perturb: which parameters get noise, as shell patterns on their names; each must match
            one. Whatever matches none is published exactly, up to the symmetry.
        publish_dtype: of the published copies; rounding comes last.
        max_unchanged: largest tolerated share of entries that the noise was to change and that
            come out of the rounding to ``publish_dtype`` unchanged.
        eta_srv: step size of the server (eq. 13).
        self_check_bound: largest tolerated difference between logits of the model and of a copy
            without noise, in float32.
        privacy: calibrates the noise by the Gaussian mechanism; ``kappa`` is then unused.
    """

    m: int = 2
    kappa: float = 0.01
    alphas: tuple[float, ...] | None = None
    symmetry: Symmetry = "full"
    perturb: tuple[str, ...] = ("*",)
    publish_dtype: PublishDtype = "float32"
    max_unchanged: float = 0.05
    eta_srv: float = 1.0
    self_check_bound: float = 1e-3
    privacy: PrivacySettings | None = None

    def __post_init__(self) -> None:
        if self.m < 2:
            raise ValueError(f"m must be >= 2, or the noise cannot cancel, got {self.m}")
        if not (self.kappa >= 0 and math.isfinite(self.kappa)):
            raise ValueError(f"kappa must be >= 0, got {self.kappa}")
        if self.alphas is not None:
            _check_alphas(self.alphas, self.m)
        if not self.perturb:
            raise ValueError("perturb names no parameter; for no noise set kappa=0")
        if not 0 <= self.max_unchanged <= 1:
            raise ValueError(f"max_unchanged must be in [0, 1], got {self.max_unchanged}")
        for name in ("eta_srv", "self_check_bound"):
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise ValueError(f"{name} must be a positive number, got {getattr(self, name)}")
        if self.privacy is not None and self.perturb != ("*",):
            raise ValueError("privacy needs noise on every parameter; leave perturb at ['*']")

    @property
    def scales(self) -> tuple[float, ...]:
        """``alpha_k`` of every copy, in their order."""
        if self.alphas is not None:
            return self.alphas
        return tuple(1 + k / (self.m - 1) for k in range(self.m))

    @property
    def dtype(self) -> torch.dtype:
        """What :attr:`publish_dtype` names."""
        return DTYPES[self.publish_dtype]


def _check_alphas(alphas: Sequence[float], m: int) -> None:
    if len(alphas) != m:
        raise ValueError(f"alphas must have one entry a copy, got {len(alphas)} for m={m}")
    if not all(alpha > 0 and math.isfinite(alpha) for alpha in alphas):
        raise ValueError(f"alphas must be positive numbers, got {list(alphas)}")
