"""FIRM's Fisher-free baseline: both means, no weights, no mask (paper appendix D.1)."""

from torch import Tensor

from fedunlearn.merging.inputs import TensorInputs
from fedunlearn.merging.interface import MERGE_METHODS, MergeMethod
from fedunlearn.roles import Role
from fedunlearn.settings import settings

_ROLES: tuple[Role, ...] = ("forget", "retain")


@MERGE_METHODS.register("uniform")
@settings
class Uniform(MergeMethod):
    """Mean of the forget clients plus mean of the retain clients.

    FIRM's eq. 22. Every forget client weighs the same, so a domain with more clients weighs more;
    ``firm`` with ``weights: dense`` is the same with domains weighing the same.
    """

    def rows(self, block: TensorInputs) -> Tensor:
        """A role without clients adds nothing."""
        merged = block.zeros()
        for role in _ROLES:
            if clients := block.of(role):
                merged += block.mean_update(clients)
        return merged
