"""The two merges without weights: the mean of everything, the sum of what forgets."""

from torch import Tensor

from fedunlearn.merging.inputs import TensorInputs
from fedunlearn.merging.interface import MERGE_METHODS, MergeMethod
from fedunlearn.settings import settings


@MERGE_METHODS.register("avg")
@settings
class Avg(MergeMethod):
    """Mean of all clients' task vectors, forget and retain alike."""

    def rows(self, block: TensorInputs) -> Tensor:
        """Every client weighs the same, whatever its domain or number of examples."""
        return block.mean_update(block.contributions)


@MERGE_METHODS.register("sum")
@settings
class Sum(MergeMethod):
    """Sum of the forget clients' task vectors; grows with them."""

    def rows(self, block: TensorInputs) -> Tensor:
        """Zero without a forget client; retain clients take no part."""
        return block.total_update(block.of("forget"))
