"""The server's instructions to the clients as JSON, for the wire."""

from pydantic import TypeAdapter, ValidationError

from fedunlearn.errors import RunError
from fedunlearn.training.client_settings import ClientInstructions
from fedunlearn.training.copy_job import CopyInstructions

_SCHEMA = TypeAdapter(ClientInstructions)


def encode_instructions(instructions: ClientInstructions) -> str:
    """Write instructions as JSON."""
    return _SCHEMA.dump_json(instructions).decode()


def decode_instructions(text: str) -> ClientInstructions:
    """Read instructions from JSON.

    Raises:
        RunError: the server asks for something this version does not know; the text names it.
    """
    try:
        return _SCHEMA.validate_json(text)
    except ValidationError as fault:
        raise RunError(f"the server's instructions do not fit this client: {fault}") from fault


_COPY_SCHEMA = TypeAdapter(CopyInstructions)


def encode_copy_instructions(instructions: CopyInstructions) -> str:
    """Write what goes with a published copy as JSON."""
    return _COPY_SCHEMA.dump_json(instructions).decode()


def decode_copy_instructions(text: str) -> CopyInstructions:
    """Read what goes with a published copy from JSON.

    Raises:
        RunError: the server asks for something this version does not know; the text names it.
    """
    try:
        return _COPY_SCHEMA.validate_json(text)
    except ValidationError as fault:
        raise RunError(f"the server's instructions do not fit this client: {fault}") from fault
