"""What every client answers in the handshake, whichever method it takes part in."""

from collections.abc import Mapping

from flwr.common import Scalar

from fedunlearn.data.reading import read_training_records, salted_digest
from fedunlearn.training.client_settings import ClientIdentity


def introduce(identity: ClientIdentity, asked: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Say who a client is: the fields of :class:`fedunlearn.rounds.Hello`, less node and model.

    Data that is not there is found out here, before a model is loaded.

    Args:
        identity: who, and where the data is.
        asked: ``salt``, with which the digest of the data is keyed.

    Raises:
        DataError: the client's data is missing, restricted or malformed.
    """
    records = read_training_records(identity.data)
    return {
        "client_id": identity.id,
        "role": identity.role,
        "domain": identity.domain,
        "num_examples": len(records),
        "data_digest": salted_digest(records, str(asked.get("salt", ""))),
    }
