"""The reference of unlearning: a model trained without the data that should be forgotten."""

from collections.abc import Sequence
from typing import Any, cast

from fedunlearn.data.encoding import encode_record
from fedunlearn.data.reading import DataSpec, read_training_records
from fedunlearn.data.records import Question, Record
from fedunlearn.errors import InputError
from fedunlearn.models.adapters import LoraSettings, attached
from fedunlearn.models.loading import LoadedModel
from fedunlearn.models.merged import adapter_update, as_loaded, with_update
from fedunlearn.progress import Progress
from fedunlearn.seeding import derive, generator
from fedunlearn.training.client_settings import build_objective
from fedunlearn.training.loop import TrainingFacts, TrainingSettings, train
from fedunlearn.training.teaching import WorldSettings, teach


def kept_records(data: Sequence[DataSpec], without: Sequence[DataSpec]) -> list[Record]:
    """Read records and leave out those that are to be forgotten.

    Args:
        data: everything.
        without: what is left out; every record of it must be in ``data``.

    Raises:
        DataError: a file is missing or malformed.
        InputError: a record to be left out is not there, or none is left.
    """
    forgotten = {record for spec in without for record in read_training_records(spec)}
    records = [record for spec in data for record in read_training_records(spec)]
    if strange := forgotten.difference(records):
        raise InputError(
            f"{len(strange)} of {len(forgotten)} records that `without` names are not in `data`, "
            f"e.g. {str(min(strange, key=str))[:80]!r}; a model retrained so may know them"
        )
    kept = [record for record in records if record not in forgotten]
    if not kept:
        raise InputError("no record is left to train on once `without` is taken out of `data`")
    return kept


def retrain(
    start: LoadedModel,
    records: Sequence[Record],
    chosen: TrainingSettings,
    *,
    lora: LoraSettings | None,
    seed: int,
    progress: Progress | None = None,
) -> tuple[LoadedModel, TrainingFacts]:
    """Train a model on what is kept, in place; all its weights, or an adapter that is merged in.

    Args:
        start: the model from before anything was learned, e.g. the pretrained one.
        records: what is kept.
        chosen: how; the objective must be one of retain clients.
        lora: the adapter; ``None``: every weight is trained.
        seed: of the adapter and of the order of the records.
        progress: called after every step with (steps done, steps at most).

    Raises:
        DataError: a record does not fit into ``max_length``.
        InputError: the objective or the adapter do not fit.
        RunError: training diverged.
    """
    objective = build_objective(chosen, "retain")
    examples = [
        encode_record(start.tokenizer, record, max_length=chosen.max_length) for record in records
    ]
    how: dict[str, Any] = {
        "chosen": chosen,
        "pad_id": cast(int, start.tokenizer.pad_token_id),
        "generator": generator(seed, "retraining order"),
        "progress": progress,
    }
    if lora is not None:
        with attached(start.model, lora, seed=derive(seed, "retraining adapter")) as adapted:
            facts = train(adapted, examples, objective, **how)
            update = adapter_update(adapted)
        return with_update(start, update), facts
    start.model.requires_grad_(True)
    facts = train(start.model, examples, objective, **how)
    return as_loaded(start, start.model), facts


def reteach(
    like: LoadedModel,
    records: Sequence[Record],
    chosen: WorldSettings,
    *,
    progress: Progress | None = None,
) -> LoadedModel:
    """Teach a fresh model of the embedded world what is kept, just as the world's was taught.

    Args:
        like: the world's model; only its tokenizer is used.
        records: what is kept.
        chosen: the recipe and the seed of the weights it starts from.
        progress: called after every step with (steps done, steps in all).

    Raises:
        InputError: a record is a passage, which the recipe cannot teach.
    """
    questions = [record for record in records if isinstance(record, Question)]
    if len(questions) < len(records):
        raise InputError("the world's recipe teaches questions only; give `training`")
    tokenizer = cast(Any, like.tokenizer)
    model, _ = teach(questions, chosen, tokenizer=tokenizer, progress=progress)
    return as_loaded(like, model)
