"""The client's shell: a Flower NumPyClient around :func:`run_client_job`.

It decodes what the server asks, calls the training code and names the arrays of the result. Role,
domain and data path come from the node (``identity``), never from the server.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
from flwr.client import NumPyClient
from flwr.common import NDArrays, Scalar
from numpy.typing import NDArray

from clients.introduction import introduce
from fedunlearn.errors import RunError
from fedunlearn.instructions import decode_instructions
from fedunlearn.models.loading import LoadedModel, ModelSettings, fingerprint, load_base
from fedunlearn.summary import ClientSummary, to_wire
from fedunlearn.training.client_job import run_client_job
from fedunlearn.training.client_settings import ClientIdentity

RunJob = Callable[..., ClientSummary]
"""Called with the base model, the identity and the instructions; see :func:`run_client_job`."""


@lru_cache(maxsize=1)
def shared_base(settings: ModelSettings) -> LoadedModel:
    """Load the base model, once for all clients that run in this process."""
    return load_base(settings)


@contextmanager
def unchanged(base: LoadedModel) -> Iterator[None]:
    """Run a block that must leave the weights of ``base`` as they are, bit for bit.

    Raises:
        RunError: it did not. The model is then forgotten, so that the next client in this
            process loads it afresh.
    """
    try:
        yield
    finally:
        if (digest := fingerprint(base.model)) != base.sha256:
            shared_base.cache_clear()
            raise RunError(
                f"the client changed the shared base model {base.name!r}: its hash was "
                f"{base.sha256[:12]} and is {digest[:12]}"
            )


class UnlearnClient(NumPyClient):
    """A forget or retain client of one round.

    Args:
        identity: who this node is and where its data lies.
        model: the base model, loaded when first needed.
        run_job: the client's whole work; replaced in tests only.
    """

    def __init__(
        self, identity: ClientIdentity, model: ModelSettings, *, run_job: RunJob = run_client_job
    ) -> None:
        self.identity = identity
        self._model = model
        self._run_job = run_job

    def get_properties(self, config: dict[str, Scalar]) -> dict[str, Scalar]:
        """Say who this is: the fields of :class:`fedunlearn.rounds.Hello`, less the node.

        Args:
            config: ``salt``, with which the digest of the data is keyed.

        Raises:
            DataError: the client's data is missing, restricted or malformed.
            InputError: the base model cannot be loaded.
        """
        said = introduce(self.identity, config)
        base = shared_base(self._model)
        return {**said, "base_model": base.label, "base_model_sha256": base.start_sha256}

    def fit(
        self, parameters: NDArrays, config: dict[str, Scalar]
    ) -> tuple[NDArrays, int, dict[str, Scalar]]:
        """Train an adapter, measure the Fisher diagonal, return both.

        Args:
            parameters: unused, the base model is already here; the list is empty.
            config: ``instructions``, the JSON of :class:`ClientInstructions`.

        Returns:
            The summary's arrays in the order of their names, the number of examples, and
            ``names`` (JSON list) and ``meta`` (JSON) to read them by.

        Raises:
            RunError: the instructions do not fit, or the job changed the base model.
        """
        instructions = decode_instructions(str(config["instructions"]))
        base = shared_base(self._model)
        with unchanged(base):
            summary = self._run_job(base, self.identity, instructions)
        arrays, meta = to_wire(summary)
        names = sorted(arrays)
        labels: dict[str, Scalar] = {"names": json.dumps(names), "meta": meta}
        return [arrays[name] for name in names], summary.meta.num_examples, labels


def read_fit(
    result: tuple[NDArrays, int, dict[str, Scalar]],
) -> tuple[dict[str, NDArray[np.generic]], str]:
    """Name the arrays that :meth:`UnlearnClient.fit` returned, and return its ``meta``."""
    arrays, _, labels = result
    return dict(zip(json.loads(str(labels["names"])), arrays, strict=True)), str(labels["meta"])
