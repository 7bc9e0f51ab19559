"""FIRM's Fisher-free baseline: both means, no weights, no mask (paper appendix D.1)."""

from torch import Tensor

from fedunlearn.merging.interface import MERGE_METHODS, MergeMethod, TensorInputs
from fedunlearn.roles import Role
from fedunlearn.settings import settings
from fedunlearn.tensors.fisher import pool

_ROLES: tuple[Role, ...] = ("forget", "retain")


@MERGE_METHODS.register("uniform")
@settings
class Uniform(MergeMethod):
    """Mean of the forget clients plus mean of the retain clients.

    FIRM's eq. 22. Every forget client weighs the same, so a domain with more clients weighs more;
    ``firm`` with ``weights: dense`` is the same with domains weighing the same.
    """

    def __call__(self, inputs: TensorInputs) -> Tensor:
        """A role without clients adds nothing."""
        merged = inputs.zeros()
        for role in _ROLES:
            if clients := inputs.of(role):
                merged += pool([client.task_vector for client in clients])
        return merged
