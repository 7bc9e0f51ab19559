"""Reads a configuration: YAML below, overrides on top, every fault listed at once.

Relative paths in a config are taken from the folder the command is started in; ``~`` is the
user's home. The configuration that is written beside a run's results holds absolute paths only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import TypeAdapter, ValidationError

from fedunlearn.aggregation import MergeSettings
from fedunlearn.config.checks import cross_check
from fedunlearn.config.data_entries import normalise_sources
from fedunlearn.config.entries import normalise_entries
from fedunlearn.config.faults import describe
from fedunlearn.config.schema import RunConfig
from fedunlearn.errors import ConfigError
from fedunlearn.registry import nearest

DEFAULT = "firm_demo"
_SUFFIXES = (".yaml", ".yml")
_FILE_KEYS = ("data", "choices", "retain_data", "refusals")
_PACKAGE = Path(__file__).resolve().parents[1]


def builtin_configs() -> dict[str, Path]:
    """Names and paths of the configurations that come with the package."""
    installed, beside = _PACKAGE / "builtin_configs", _PACKAGE.parent / "configs"
    folder = installed if installed.is_dir() else beside
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def load_config(
    source: str | Path | None = None,
    overrides: Sequence[str] = (),
    *,
    local: bool = False,
    fetch: bool = False,
) -> RunConfig:
    """Read, merge, check and type a configuration.

    Args:
        source: a name from ``configs/`` or the path of a YAML file; ``None``: the default.
        overrides: ``dotted.key=value`` each, the value as in YAML; later ones win. Items of a
            list go by number: ``clients.0.data=my.jsonl``.
        local: the whole run is on this machine, so its clients must be listed and every file
            be here; in a deployment each node has its own.
        fetch: with ``local``, read data that is on the hub, too.

    Raises:
        ConfigError: one or more faults, all listed.
    """
    tree = _absolute_paths(_read(_find(str(source or DEFAULT)), overrides), Path.cwd())
    tree, faults = normalise_entries(tree)
    tree, in_sources = normalise_sources(tree)
    faults += in_sources
    config = None
    try:
        config = TypeAdapter(RunConfig).validate_python(tree)
    except ValidationError as fault:
        faults += describe(fault, RunConfig, tree)
    faults += cross_check(tree, local=local, fetch=fetch)
    if faults or config is None:
        raise ConfigError(list(dict.fromkeys(faults)))
    return config


def check_config(
    source: str | Path | None = None, overrides: Sequence[str] = (), *, fetch: bool = False
) -> list[str]:
    """List every fault of a configuration for a run on this machine, one line each.

    Args:
        source: as in :func:`load_config`.
        overrides: as there.
        fetch: read data that is on the hub, too.
    """
    try:
        load_config(source, overrides, local=True, fetch=fetch)
    except ConfigError as error:
        return list(error.faults)
    return []


def to_yaml(config: RunConfig) -> str:
    """Write a configuration out in full; loading the text gives an equal one."""
    tree = TypeAdapter(RunConfig).dump_python(config, mode="json")
    text: str = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    return text


def check_files(config: RunConfig) -> None:
    """Check all data a run on this machine reads, now that the embedded world is made.

    Data on the hub is fetched for it.

    Raises:
        ConfigError: one or more faults, all listed.
    """
    tree = TypeAdapter(RunConfig).dump_python(replace(config, world=None), mode="json")
    if faults := cross_check(tree, local=True, fetch=True):
        raise ConfigError(faults)


def load_merge(tree: Mapping[str, Any]) -> MergeSettings:
    """Check and type the settings of a single merge.

    Raises:
        ConfigError: one or more faults, all listed.
    """
    wrapped, faults = normalise_entries({"merges": {"merge": tree}})
    merge = None
    try:
        merge = TypeAdapter(MergeSettings).validate_python(wrapped["merges"]["merge"])
    except ValidationError as fault:
        faults += describe(fault, MergeSettings, tree)
    if faults or merge is None:
        raise ConfigError([fault.removeprefix("merges.merge.") for fault in faults])
    return merge


def _find(source: str) -> Path:
    path, builtin = Path(source).expanduser(), builtin_configs()
    if source in builtin:
        return builtin[source]
    if path.is_file():
        return path
    if path.suffix in _SUFFIXES or path.name != source:
        raise ConfigError([f"config file {path} does not exist"])
    raise ConfigError([f"no config is named {source!r}{nearest(source, list(builtin))}"])


def _read(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        loaded = OmegaConf.create(text) if text.strip() else OmegaConf.create()
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError([f"config file {path} cannot be read: {fault}"]) from None
    except yaml.YAMLError as fault:
        raise ConfigError([f"config file {path} is not YAML: {_one_line(fault)}"]) from None
    except (AssertionError, OmegaConfBaseException):
        raise ConfigError([f"config file {path} must hold key: value pairs"]) from None
    if not OmegaConf.is_dict(loaded):
        raise ConfigError([f"config file {path} must hold key: value pairs, not a list"])
    if faults := [wrong for text in overrides if (wrong := _override(loaded, text))]:
        raise ConfigError(faults)
    try:
        return _plain(loaded, resolve=True)
    except OmegaConfBaseException as fault:
        key = str(getattr(fault, "full_key", None) or "config").replace("[", ".").replace("]", "")
        raise ConfigError([f"{key}: {str(fault).splitlines()[0]}"]) from None


def _override(tree: Any, text: str) -> str | None:
    """Set one key; return what is wrong with the override, if anything."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        return f"override {text!r}: expected key=value"
    try:
        parsed = _plain(OmegaConf.from_dotlist([f"value={value}"]), resolve=False)
        OmegaConf.update(tree, key.strip(), parsed["value"], merge=False)
    except (yaml.YAMLError, OmegaConfBaseException, TypeError, ValueError) as fault:
        return f"override {text!r}: {_one_line(fault)}"
    return None


def _plain(tree: Any, *, resolve: bool) -> dict[str, Any]:
    return cast(dict[str, Any], OmegaConf.to_container(tree, resolve=resolve))


def _one_line(fault: Exception) -> str:
    return " ".join(str(fault).split())


def _absolute_paths(tree: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make the paths of a config absolute; model and expert only where they are local ones."""
    world, model, evaluation, lesson, resume = (
        part if isinstance(part := tree.get(key), dict) else {}
        for key in ("world", "model", "evaluation", "teach", "resume")
    )
    places: list[tuple[dict[str, Any], str]] = [(world, "directory"), (resume, "folder")]
    for listed in (tree.get("clients"), evaluation.get("sets"), [lesson]):
        rows = [
            row for row in (listed if isinstance(listed, list) else []) if isinstance(row, dict)
        ]
        for row in rows:
            for key in _FILE_KEYS:
                places.append((row[key], "path") if isinstance(row.get(key), dict) else (row, key))
    places += [(model, key) for key in ("path", "expert") if _is_local(model.get(key), folder)]
    for holder, key in places:
        if isinstance(value := holder.get(key), str) and value:
            holder[key] = str(folder / Path(value).expanduser())
    return tree


def _is_local(path: object, folder: Path) -> bool:
    if not isinstance(path, str) or not path:
        return False
    return path.startswith(("~", "/", "./", "../")) or (folder / path).is_dir()
