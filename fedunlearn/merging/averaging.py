"""The two merges without weights: the mean of everything, the sum of what forgets."""

from torch import Tensor

from fedunlearn.merging.interface import MERGE_METHODS, MergeMethod, TensorInputs
from fedunlearn.settings import settings
from fedunlearn.tensors.fisher import pool


@MERGE_METHODS.register("avg")
@settings
class Avg(MergeMethod):
    """Mean of all clients' task vectors, forget and retain alike."""

    def __call__(self, inputs: TensorInputs) -> Tensor:
        """Every client weighs the same, whatever its domain or number of examples."""
        return pool([client.task_vector for client in inputs.contributions])


@MERGE_METHODS.register("sum")
@settings
class Sum(MergeMethod):
    """Sum of the forget clients' task vectors; grows with them."""

    def __call__(self, inputs: TensorInputs) -> Tensor:
        """Zero without a forget client; retain clients take no part."""
        total = inputs.zeros()
        for client in inputs.of("forget"):
            total += client.task_vector
        return total
