"""What a client trains with: its objective and its records as token ids, read in one place."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from fedunlearn.data.encoding import Example, encode_record
from fedunlearn.data.reading import DataSpec, read_training_records
from fedunlearn.data.records import Record
from fedunlearn.data.refusals import REFUSALS, read_refusals, with_preferred_answers
from fedunlearn.models.loading import LoadedModel
from fedunlearn.objectives import Objective
from fedunlearn.seeding import generator
from fedunlearn.training.client_settings import (
    ClientIdentity,
    build_objective,
    refuse_unfit_files,
)
from fedunlearn.training.loop import TrainingSettings


@dataclass(frozen=True)
class Materials:
    """Everything but the model.

    Attributes:
        objective: bound to its randomness.
        examples: the client's data.
        preferred: an answer to prefer to each, where the objective reads them.
        retain: records that a forget client keeps, where the objective reads them.
    """

    objective: Objective
    examples: tuple[Example, ...]
    preferred: tuple[Example, ...] = ()
    retain: tuple[Example, ...] = ()


def gather(
    base: LoadedModel,
    identity: ClientIdentity,
    chosen: TrainingSettings,
    *,
    seed: int,
    server_round: int,
    spare: bool = False,
) -> Materials:
    """Read a client's files and bind its objective.

    Args:
        base: whose tokenizer and width are used, not its weights.
        identity: who, and where the files are.
        chosen: the training that is to come.
        seed: of the whole run.
        server_round: which preferred answers are drawn depends on it.
        spare: the client may have files that the objective does not read.

    Raises:
        DataError: a file is missing or malformed.
        InputError: the objective is unknown, not for the client's role, or lacks a file.
    """
    objective = build_objective(chosen, identity.role)
    refuse_unfit_files(objective, identity, spare=spare)
    key = objective.seed_key(identity.id, identity.domain)
    bound = objective.bind(generator(seed, "objective", *key), base.model.config.hidden_size)
    preferred, retain = list[Example](), list[Example]()
    if objective.needs_preferred:
        draws = generator(seed, "client", identity.id, server_round, "refusals")
        preferred = _preferred(base, identity, chosen.max_length, draws=draws)
    if objective.needs_retain and identity.retain_data is not None:
        retain = encode_file(base, identity.retain_data, chosen.max_length)
    examples = encode_file(base, identity.data, chosen.max_length)
    return Materials(bound, tuple(examples), tuple(preferred), tuple(retain))


def encode_file(base: LoadedModel, data: DataSpec, max_length: int) -> list[Example]:
    """Read the records of a file or source as token ids.

    Raises:
        DataError: it is missing or malformed.
    """
    return _encode(base, read_training_records(data), max_length)


def _encode(base: LoadedModel, records: Sequence[Record], max_length: int) -> list[Example]:
    return [encode_record(base.tokenizer, record, max_length=max_length) for record in records]


def _preferred(
    base: LoadedModel, identity: ClientIdentity, max_length: int, *, draws: torch.Generator
) -> list[Example]:
    records = read_training_records(identity.data)
    own = identity.refusals
    refusals = REFUSALS if own is None else read_refusals(Path(own).expanduser())
    return _encode(base, with_preferred_answers(records, refusals, generator=draws), max_length)
