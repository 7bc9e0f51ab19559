"""FIRM's support- and norm-matched control (paper appendix D.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedunlearn.merging.firm import Firm, uniform_on_mask
from fedunlearn.merging.interface import MERGE_METHODS, MergeMethod, TensorInputs, settle
from fedunlearn.roles import Role
from fedunlearn.settings import settings

_FISHER, _UNIFORM = Firm(), Firm(weights="uniform")


@MERGE_METHODS.register("firm_matched")
@settings
class FirmMatched(MergeMethod):
    """Control of firm: its masks and its norm, with uniform weights.

    The merge is ``firm`` with ``weights: uniform``: each F~ becomes 1 where it is positive, in
    numerator and denominator of eq. 4 alike. One factor for all tensors then gives it the
    Euclidean norm that ``firm`` has over the whole model. What is left to differ is how weight is
    shared between those who claim a coordinate. The report's facts say how well it matched.
    """

    needs_fisher = True

    @property
    def surveys(self) -> bool:
        """Norms are of the whole model."""
        return True

    def survey(self, inputs: TensorInputs) -> Tensor:
        """Squared norms of both merges, and the number of weights on which the masks differ."""
        norms = [merge(inputs).double().square().sum() for merge in (_FISHER, _UNIFORM)]
        return torch.stack([*norms, torch.tensor(_mask_mismatches(inputs), dtype=torch.float64)])

    def settled(self, total: Tensor) -> MergeMethod:
        """Take the factor from the sums."""
        fisher, uniform, mismatches = total.tolist()
        return _Rescaled(fisher**0.5, uniform**0.5, int(mismatches))

    def __call__(self, inputs: TensorInputs) -> Tensor:
        """Match this tensor alone."""
        return settle(self, lambda: [inputs])(inputs)


@dataclass(frozen=True)
class _Rescaled(MergeMethod):
    """The control with its factor; norms are of the whole model."""

    firm_norm: float
    uniform_norm: float
    mask_mismatches: int

    needs_fisher = True

    @property
    def scale(self) -> float:
        return self.firm_norm / self.uniform_norm if self.uniform_norm else 1.0

    def facts(self, roles: Mapping[str, Role], raw_norm: float) -> dict[str, Any]:
        mismatch = abs(raw_norm / self.firm_norm - 1.0) if self.firm_norm else raw_norm
        return {
            "firm_norm": self.firm_norm,
            "uniform_norm": self.uniform_norm,
            "scale": self.scale,
            "mask_mismatches": self.mask_mismatches,
            "relative_norm_mismatch": mismatch,
        }

    def __call__(self, inputs: TensorInputs) -> Tensor:
        return (_UNIFORM(inputs).double() * self.scale).to(torch.float32)


def _mask_mismatches(inputs: TensorInputs) -> int:
    sources = (*inputs.forget_domains, *inputs.retain_clients)
    return sum(
        int(((source.fisher > 0.0) != (uniform_on_mask(source).fisher > 0.0)).sum())
        for source in sources
    )
