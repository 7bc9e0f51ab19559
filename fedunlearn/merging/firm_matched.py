"""FIRM's support- and norm-matched control (paper appendix D.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedunlearn.merging.firm import Firm, mask_of
from fedunlearn.merging.inputs import TensorInputs
from fedunlearn.merging.interface import MERGE_METHODS, MergeMethod
from fedunlearn.roles import Role
from fedunlearn.settings import settings
from fedunlearn.tensors.sums import square_sum

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
        return torch.tensor(list(inputs.each_block(_compare)), dtype=torch.float64).sum(0)

    def settled(self, total: Tensor) -> MergeMethod:
        """Take the factor from the sums."""
        fisher, uniform, mismatches = total.tolist()
        return _Rescaled(fisher**0.5, uniform**0.5, int(mismatches))


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

    def rows(self, block: TensorInputs) -> Tensor:
        return _UNIFORM.rows(block).double().mul_(self.scale).to(torch.float32)


def _compare(block: TensorInputs) -> tuple[float, float, int]:
    return square_sum(_FISHER.rows(block)), square_sum(_UNIFORM.rows(block)), _mismatches(block)


def _mismatches(block: TensorInputs) -> int:
    fishers = [source.fisher for source in (*block.forget_domains, *block.retain_clients)]
    return sum(int(((one > 0.0) != (mask_of(one) > 0.0)).sum()) for one in fishers)
