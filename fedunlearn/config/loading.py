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
from fedunlearn.config.mpu import MpuConfig, spread_defaults
from fedunlearn.config.schema import RunConfig
from fedunlearn.errors import ConfigError
from fedunlearn.registry import nearest

AnyConfig = RunConfig | MpuConfig
DEFAULT = "firm_demo"
_SCHEMAS: dict[str, type[AnyConfig]] = {"firm": RunConfig, "mpu": MpuConfig}
_SUFFIXES = (".yaml", ".yml")
_FILE_KEYS = ("data", "choices", "retain_data", "refusals", "holdout")
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
    """Read, merge, check and type a configuration of FIRM.

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
    config = load_run(source, overrides, local=local, fetch=fetch)
    if not isinstance(config, RunConfig):
        raise ConfigError([f"method: {config.method!r} has no summaries to merge; only firm has"])
    return config


def load_run(
    source: str | Path | None = None,
    overrides: Sequence[str] = (),
    *,
    local: bool = False,
    fetch: bool = False,
) -> AnyConfig:
    """Read, merge, check and type a configuration of any method, which ``method`` names.

    Arguments and errors are those of :func:`load_config`.
    """
    tree = spread_defaults(read_tree(_find(str(source or DEFAULT)), overrides))
    tree, faults = normalise_entries(_absolute_paths(tree, Path.cwd()))
    tree, in_sources = normalise_sources(tree)
    faults += in_sources
    method, config = tree.get("method", "firm"), None
    if method not in _SCHEMAS:
        raise ConfigError([f"method: expected one of {', '.join(_SCHEMAS)}, got {method!r}"])
    schema = _SCHEMAS[method]
    try:
        config = TypeAdapter(schema).validate_python(tree)
    except ValidationError as fault:
        faults += describe(fault, schema, tree)
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
        load_run(source, overrides, local=True, fetch=fetch)
    except ConfigError as error:
        return list(error.faults)
    return []


def to_yaml(config: AnyConfig) -> str:
    """Write a configuration out in full; loading the text gives an equal one."""
    tree = TypeAdapter(type(config)).dump_python(config, mode="json")
    text: str = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    return text


def check_files(config: AnyConfig) -> None:
    """Check all data a run on this machine reads, now that the embedded world is made.

    Data on the hub is fetched for it.

    Raises:
        ConfigError: one or more faults, all listed.
    """
    tree = TypeAdapter(type(config)).dump_python(replace(config, world=None), mode="json")
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


def read_tree(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Read a YAML file, put overrides on top, and resolve what refers to other keys.

    Raises:
        ConfigError: it cannot be read, or an override is no ``key=value``.
    """
    loaded = _extended(path, ())
    if faults := [wrong for text in overrides if (wrong := _override(loaded, text))]:
        raise ConfigError(faults)
    try:
        return _plain(loaded, resolve=True)
    except OmegaConfBaseException as fault:
        key = str(getattr(fault, "full_key", None) or "config").replace("[", ".").replace("]", "")
        raise ConfigError([f"{key}: {str(fault).splitlines()[0]}"]) from None


def _extended(path: Path, above: tuple[Path, ...]) -> Any:
    """Read a file, and below it the one it ``extends``, if it does; lists are not mixed."""
    if path.resolve() in above:
        raise ConfigError([f"extends: {path} extends itself"])
    loaded = _one_file(path)
    below = loaded.pop("extends", None)
    if below is None:
        return loaded
    if not isinstance(below, str):
        raise ConfigError([f"extends: expected the name of a config or a file, got {below!r}"])
    found = below if below in builtin_configs() else str(path.parent / Path(below).expanduser())
    return OmegaConf.merge(_extended(_find(found), (*above, path.resolve())), loaded)


def _one_file(path: Path) -> Any:
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
    return loaded


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
    """Make the paths of a config absolute; those of models only where they are local ones."""
    world, model, reference, evaluation, lesson, resume = (
        part if isinstance(part := tree.get(key), dict) else {}
        for key in ("world", "model", "reference", "evaluation", "teach", "resume")
    )
    previous = tree["previous"] if isinstance(tree.get("previous"), dict) else {}
    places: list[tuple[dict[str, Any], str]] = [(world, "directory"), (resume, "folder")]
    places += [(tree, "receipt_key"), (previous, "receipt")]
    for listed in (tree.get("clients"), evaluation.get("sets"), [lesson]):
        rows = [
            row for row in (listed if isinstance(listed, list) else []) if isinstance(row, dict)
        ]
        for row in rows:
            for key in _FILE_KEYS:
                places.append((row[key], "path") if isinstance(row.get(key), dict) else (row, key))
    models = [(model, "path"), (model, "expert"), (reference, "path")]
    places += [(one, key) for one, key in models if _is_local(one.get(key), folder)]
    for holder, key in places:
        if isinstance(value := holder.get(key), str) and value:
            holder[key] = str(folder / Path(value).expanduser())
    return tree


def _is_local(path: object, folder: Path) -> bool:
    if not isinstance(path, str) or not path:
        return False
    return path.startswith(("~", "/", "./", "../")) or (folder / path).is_dir()
