"""Teaches a backbone something by LoRA: makes the expert adapter that clients later start from."""

from dataclasses import dataclass
from pathlib import Path

from peft import LoraConfig

from fedunlearn.data.encoding import encode_record
from fedunlearn.data.reading import DataSpec, read_training_records
from fedunlearn.errors import InputError
from fedunlearn.models.adapters import Adapter, LoraSettings, attached, read_adapter
from fedunlearn.models.expert import make_expert
from fedunlearn.models.loading import LoadedModel
from fedunlearn.models.quantized import training_copy
from fedunlearn.progress import Progress
from fedunlearn.seeding import derive, generator
from fedunlearn.settings import settings
from fedunlearn.storage import atomic_folder, write_json, write_tensors
from fedunlearn.training.client_settings import build_objective
from fedunlearn.training.loop import TrainingFacts, TrainingSettings, train

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"


@settings
class LessonSettings:
    """What ``fedunlearn teach`` teaches the backbone, and how.

    Attributes:
        data: path of a file, or a data source and its settings.
        lora: the expert adapter.
        training: as a retain client's: plain language modelling.
    """

    data: DataSpec
    lora: LoraSettings
    training: TrainingSettings

    def __post_init__(self) -> None:
        if self.training.objective.get("name") != "retain_nll":
            raise ValueError("training.objective must be {name: retain_nll}: an expert is taught")
        if self.training.stop_at_loss is not None:
            raise ValueError("training.stop_at_loss must be null: only a forget client stops at it")


@dataclass(frozen=True)
class Lesson:
    """A taught adapter, and how it went."""

    adapter: Adapter
    facts: TrainingFacts
    sha256: str


def teach_expert(
    base: LoadedModel, chosen: LessonSettings, *, seed: int, progress: Progress | None = None
) -> Lesson:
    """Train an adapter on the bare backbone, or on its 4-bit copy, by the clients' loop.

    Raises:
        DataError: the data is missing or malformed.
        InputError: the adapter does not fit, or the model has an expert already.
        RunError: training diverged before it learned anything.
    """
    if base.expert is not None:
        raise InputError(
            f"the model already has expert {base.expert.name}; set model.expert to null to teach "
            "the backbone another"
        )
    training = chosen.training
    records = read_training_records(chosen.data)
    examples = [encode_record(base.tokenizer, r, max_length=training.max_length) for r in records]
    with (
        training_copy(base) as copy,
        attached(copy.model, chosen.lora, seed=derive(seed, "expert", "adapter")) as adapted,
    ):
        facts = train(
            adapted,
            examples,
            build_objective(training, "retain"),
            chosen=training,
            pad_id=base.tokenizer.pad_token_id or 0,
            generator=generator(seed, "expert", "order"),
            progress=progress,
        )
        adapter = read_adapter(adapted)
        config = adapted.peft_config["default"]
    if not isinstance(config, LoraConfig):  # `attached` makes nothing else
        raise TypeError(f"expected a LoRA adapter, got {type(config).__name__}")
    adapter.config["base_model_name_or_path"] = base.name
    return Lesson(adapter, facts, make_expert("lesson", config, adapter.weights).sha256)


def save_lesson(lesson: Lesson, out: Path) -> None:
    """Write the adapter as a folder that PEFT and ``model.expert`` load, whole or not at all.

    Raises:
        InputError: something that is no adapter is at ``out``.
    """
    with atomic_folder(out, marker=CONFIG_FILE) as partial:
        write_tensors(partial / WEIGHTS_FILE, lesson.adapter.weights)
        write_json(partial / CONFIG_FILE, lesson.adapter.config)
