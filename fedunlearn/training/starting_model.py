"""The model a client started from, which several objectives measure the trained one against.

With an adapter under training it is the same model with that adapter off: no second model. When
the weights themselves are trained there is nothing to switch off. Then what is computed once, the
log-probabilities, is computed before the first step; and only an objective that reads logits or
hidden states of the starting model at every step makes a frozen copy of it.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedunlearn.models.adapters import has_trained_adapter, without_trained_adapter


class StartingModel:
    """What ``model`` is before its first step.

    Args:
        model: about to be trained; with an adapter that requires a gradient, or with weights
            that do.
        read_again: it is read after the first step, too.
    """

    def __init__(self, model: torch.nn.Module, *, read_again: bool) -> None:
        self._model = model
        self._adapted = has_trained_adapter(model)
        self._copy: torch.nn.Module | None = None
        if read_again and not self._adapted:
            self._copy = copy.deepcopy(model).requires_grad_(False).train(False)

    @contextmanager
    def running(self) -> Iterator[torch.nn.Module]:
        """Provide it for the length of the block, with dropout off.

        Without an adapter and with ``read_again`` off, only before the first step.
        """
        if self._adapted:
            with without_trained_adapter(self._model):
                yield self._model
        elif self._copy is not None:
            yield self._copy
        else:
            with _at_rest(self._model):
                yield self._model


@contextmanager
def _at_rest(model: torch.nn.Module) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
