"""The client's shell for MPU: a Flower NumPyClient around :func:`run_copy_job`.

It has architecture and tokenizer of the public model; the weights of every copy come with the
question. Role, domain and data path come from the node (``identity``), never from the server.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from flwr.client import NumPyClient
from flwr.common import NDArrays, Scalar
from numpy.typing import NDArray
from torch import Tensor

from clients.introduction import introduce
from fedunlearn.copies import digest
from fedunlearn.copies.update import CopyUpdate
from fedunlearn.copies.wire import decode_tensors, update_to_wire
from fedunlearn.errors import RunError
from fedunlearn.instructions import decode_copy_instructions
from fedunlearn.models.architecture import Architecture, load_architecture
from fedunlearn.models.loading import ModelSettings
from fedunlearn.training.client_settings import ClientIdentity
from fedunlearn.training.copy_job import CopyInstructions, run_copy_job

RunCopyJob = Callable[
    [Architecture, ClientIdentity, CopyInstructions, Mapping[str, Tensor]], CopyUpdate
]


@lru_cache(maxsize=1)
def shared_architecture(settings: ModelSettings) -> Architecture:
    """Load configuration and tokenizer, once for all clients that run in this process."""
    return load_architecture(settings)


class CopyClient(NumPyClient):
    """A client of MPU's rounds.

    Args:
        identity: who this node is and where its data lies.
        reference: the public model; its weights are not read.
        run_job: the client's whole work; replaced in tests only.
    """

    def __init__(
        self,
        identity: ClientIdentity,
        reference: ModelSettings,
        *,
        run_job: RunCopyJob = run_copy_job,
    ) -> None:
        self.identity = identity
        self._reference = reference
        self._run_job = run_job

    def get_properties(self, config: dict[str, Scalar]) -> dict[str, Scalar]:
        """Say who this is: the fields of :class:`fedunlearn.rounds.Hello`, less the node.

        Args:
            config: ``salt``, with which the digest of the data is keyed.

        Raises:
            DataError: the client's data is missing, restricted or malformed.
            InputError: the public model cannot be found.
        """
        said = introduce(self.identity, config)
        sha256 = shared_architecture(self._reference).sha256
        return {**said, "base_model": self._reference.path, "base_model_sha256": sha256}

    def fit(
        self, parameters: NDArrays, config: dict[str, Scalar]
    ) -> tuple[NDArrays, int, dict[str, Scalar]]:
        """Unlearn on a published copy.

        Args:
            parameters: the copy's arrays, bfloat16 as uint16 bits.
            config: ``names`` (JSON list) of the arrays, ``dtypes`` (JSON) of the tensors, and
                ``instructions``, the JSON of :class:`CopyInstructions`.

        Returns:
            The update's arrays in the order of their names, the number of examples, and
            ``names``, ``dtypes`` and ``meta`` to read them by.

        Raises:
            RunError: the instructions do not fit, or the copy is not the one they are for.
        """
        names: list[str] = json.loads(str(config["names"]))
        arrays = dict(zip(names, parameters, strict=True))
        published = decode_tensors(arrays, str(config["dtypes"]))
        instructions = decode_copy_instructions(str(config["instructions"]))
        _refuse_other_copy(published, names, instructions)
        architecture = shared_architecture(self._reference)
        update = self._run_job(architecture, self.identity, instructions, published)
        made, texts = update_to_wire(update)
        labels: dict[str, Scalar] = {"names": json.dumps(sorted(made)), **texts}
        return [made[name] for name in sorted(made)], update.meta.num_examples, labels


def _refuse_other_copy(
    published: Mapping[str, Tensor], names: list[str], instructions: CopyInstructions
) -> None:
    """A copy that was changed on its way would spoil the average of all."""
    found = digest((name, published[name]) for name in names)
    if found != instructions.ticket.digest:
        raise RunError(
            f"{instructions.ticket} arrived with digest {found[:12]}, sent was "
            f"{instructions.ticket.digest[:12]}: it was changed on its way"
        )


def read_copy_fit(
    result: tuple[NDArrays, int, dict[str, Scalar]],
) -> tuple[dict[str, NDArray[np.generic]], dict[str, str]]:
    """Name the arrays that :meth:`CopyClient.fit` returned, and return its texts."""
    arrays, _, labels = result
    named = dict(zip(json.loads(str(labels["names"])), arrays, strict=True))
    return named, {key: str(labels[key]) for key in ("dtypes", "meta")}
