"""What a merge method is: a function from one tensor of every client to its raw merge.

A method computes the *raw* merge (gamma = 1, no projection). Scaling by gamma (eq. 5) and the
retention projection (eq. 7) are the same for every method and live outside it, so that a sweep
over gamma and epsilon computes each raw merge once.

Some methods must know the whole model before they can merge its first tensor: which clients are
alike, how long the update is, where a threshold over all entries lies. They *survey*: each tensor
gives a few numbers, which are added up over all tensors, and the sum settles the method.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedunlearn.merging.inputs import TensorInputs
from fedunlearn.registry import Registry
from fedunlearn.roles import Role

RowMerge = Callable[[TensorInputs], Tensor]
"""Merges a block of rows of a tensor: shape (rows, d_in), float32, owned by the caller."""


class MergeMethod:
    """One merge method: a frozen ``@settings`` class; :meth:`on` and :meth:`rows` are the maths.

    The first line of the docstring is what ``fedunlearn list merges`` prints.

    Attributes:
        needs_fisher: the method weighs forget clients by their Fishers.
        needs_learnt: task vectors of forget clients must point towards what is to be forgotten,
            as plain fine-tuning on it makes them, and not away from it.
    """

    needs_fisher: ClassVar[bool] = False
    needs_learnt: ClassVar[bool] = False

    @property
    def surveys(self) -> bool:
        """The method must see all tensors of the model before it merges the first."""
        return False

    def survey(self, inputs: TensorInputs) -> Tensor:
        """Return what one tensor adds to the sum that settles the method; float64, small.

        The tensor comes whole; where its entries matter, go through its blocks.
        """
        raise NotImplementedError(f"{type(self).__name__} needs no survey")

    def settled(self, total: Tensor) -> "MergeMethod":
        """Return the method that knows the sum over all tensors; it may survey once more."""
        raise NotImplementedError(f"{type(self).__name__} needs no survey")

    def facts(self, roles: Mapping[str, Role], raw_norm: float) -> dict[str, Any]:
        """Return what the survey found, for the report.

        Args:
            roles: client's id to its role, in the order of the contributions.
            raw_norm: Euclidean norm of the raw merge over all tensors, as delivered.
        """
        return {}

    def on(self, inputs: TensorInputs) -> RowMerge:
        """Find out what must be known of the whole tensor; return how its rows are merged.

        What is returned is called from several threads.
        """
        return self.rows

    def rows(self, block: TensorInputs) -> Tensor:
        """Return the raw merge of a block of rows, shape (rows, d_in), float32, a new tensor."""
        raise NotImplementedError(f"{type(self).__name__} merges no rows before it is settled")

    def __call__(self, inputs: TensorInputs) -> Tensor:
        """Return the raw merge of one tensor, shape (d_out, d_in), float32.

        A method that surveys and is not settled yet takes the tensor for the whole model.
        """
        if self.surveys:
            return settle(self, lambda: [inputs])(inputs)
        merge = self.on(inputs)
        merged = torch.empty(inputs.shape)

        def fill(block: TensorInputs) -> None:
            merged[block.rows] = merge(block)

        for _ in inputs.each_block(fill):
            pass
        return merged


def settle(method: MergeMethod, every: Callable[[], Iterable[TensorInputs]]) -> MergeMethod:
    """Survey all tensors as often as the method asks.

    Args:
        method: returned as it is if it does not survey.
        every: starts a pass over the tensors of the model, at least one, in a fixed order.

    Returns:
        A method whose call is the raw merge of any of the tensors. Sums are float64.
    """
    return settle_by(method, lambda surveying: (surveying.survey(one) for one in every()))


def settle_by(
    method: MergeMethod, surveys: Callable[[MergeMethod], Iterable[Tensor]]
) -> MergeMethod:
    """As :func:`settle`, for whoever makes the surveys of all tensors himself."""
    while method.surveys:
        parts = (part.to(torch.float64) for part in surveys(method))
        total = next(iter(parts)).clone()
        for part in parts:
            total += part
        method = method.settled(total)
    return method


MERGE_METHODS: Registry[MergeMethod] = Registry("merge method")
