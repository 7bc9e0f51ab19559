"""Reads what ``evaluate`` and ``retrain`` are told: a suite and its settings, a retraining."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from pydantic import TypeAdapter, ValidationError

from fedunlearn.config.loading import read_tree
from fedunlearn.data.reading import DataSpec
from fedunlearn.errors import ConfigError, InputError
from fedunlearn.evaluation import SUITES, Suite
from fedunlearn.evaluation.robustness import ProbeSettings
from fedunlearn.models.adapters import LoraSettings
from fedunlearn.models.loading import ModelSettings
from fedunlearn.settings import settings
from fedunlearn.training.loop import TrainingSettings
from fedunlearn.training.teaching import WorldSettings

_OWN = "own"


def load_suite(source: str, options: Sequence[str] = ()) -> tuple[str, Suite]:
    """Make a suite from a name or a YAML file, with settings on top.

    Args:
        source: a name of the registry, or a file with the suite's settings and, under ``suite``,
            its name; ``own`` without one.
        options: ``dotted.key=value`` each, the value as in YAML.

    Returns:
        Its name, and the suite.

    Raises:
        ConfigError: the file cannot be read.
        InputError: an unknown suite or setting, or a bad value.
    """
    if source in SUITES:
        return source, SUITES.build(source, _options(options))
    path = Path(source).expanduser()
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(
            f"unknown suite {source!r}; give a YAML file or one of {', '.join(SUITES)}"
        )
    tree = read_tree(path, options)
    return _suite(tree)


@settings
class RetrainConfig:
    """A model trained without the data that should be forgotten, and how it is then measured.

    Attributes:
        name: of it.
        seed: of the adapter and of the order of the records.
        world: the embedded world, made if it is not there yet; without ``training`` its recipe
            teaches a fresh model.
        model: the model training starts from, one that never saw the data; with the world's
            recipe the world's model, of which only the tokenizer is used.
        data: what the original model was trained on.
        without: what is left out of it.
        training: of every weight, or of ``lora``; ``None``: the world's recipe.
        lora: the adapter that is trained and merged in; ``None``: every weight.
        suite: settings of the suite that the results are for, its name under ``suite``.
    """

    name: str
    seed: int = 0
    world: WorldSettings | None = None
    model: ModelSettings
    data: tuple[DataSpec, ...]
    without: tuple[DataSpec, ...] = ()
    training: TrainingSettings | None = None
    lora: LoraSettings | None = None
    suite: dict[str, Any]

    def __post_init__(self) -> None:
        if not self.data:
            raise ValueError("data must name what is trained on")
        if self.training is None and self.world is None:
            raise ValueError("training is required where there is no world with a recipe")
        if self.training is None and self.lora is not None:
            raise ValueError("the world's recipe trains every weight; give training, or no lora")

    def built_suite(self) -> tuple[str, Suite]:
        """Make the suite.

        Raises:
            InputError: an unknown suite or setting, or a bad value.
        """
        return _suite(self.suite)


def load_retraining(source: str, overrides: Sequence[str] = ()) -> RetrainConfig:
    """Read a YAML file.

    Raises:
        ConfigError: it cannot be read, or has faults; all are listed.
        InputError: its suite is wrong.
    """
    path = Path(source).expanduser()
    if not path.is_file():
        raise ConfigError([f"config file {path} does not exist"])
    try:
        config = TypeAdapter(RetrainConfig).validate_python(read_tree(path, overrides))
    except ValidationError as fault:
        raise ConfigError([_line(one) for one in fault.errors(include_url=False)]) from None
    config.built_suite()
    return config


def load_probes(overrides: Sequence[str] = ()) -> ProbeSettings:
    """Make the settings of probes from ``dotted.key=value`` texts.

    Raises:
        ConfigError: an unknown key or a bad value; all are listed.
        InputError: a text has no ``=``.
    """
    try:
        return TypeAdapter(ProbeSettings).validate_python(_options(overrides))
    except ValidationError as fault:
        raise ConfigError([_line(one) for one in fault.errors(include_url=False)]) from None


def _suite(tree: dict[str, Any]) -> tuple[str, Suite]:
    chosen = {**tree}
    name = str(chosen.pop("suite", _OWN))
    return name, SUITES.build(name, chosen)


def _options(options: Sequence[str]) -> dict[str, Any]:
    for text in options:
        if "=" not in text:
            raise InputError(f"option {text!r}: expected name=value")
    found = OmegaConf.to_container(OmegaConf.from_dotlist(list(options)), resolve=True)
    return {str(key): value for key, value in dict(found).items()}  # type: ignore[arg-type]


def _line(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    text = str(error["ctx"]["error"]) if error["type"] == "value_error" else error["msg"]
    return f"{where}: {text}" if where else text
