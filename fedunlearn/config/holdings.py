"""What clients and evaluation sets hold, compared: the leak check of a whole config."""

from collections.abc import Iterator
from pathlib import Path

from fedunlearn.config.schema import CommonConfig
from fedunlearn.data.leaks import Holding, find_leaks
from fedunlearn.data.reading import DataSpec, is_remote, local_path, read_entries
from fedunlearn.errors import ConfigError


def leak_notes(config: CommonConfig, *, clients: bool, fetch: bool) -> list[str]:
    """Compare what must go, what must stay and what measures utility.

    Args:
        config: well-formed; the files it names are there, or below a world that is not made yet.
        clients: the clients' data is on this machine too.
        fetch: read data that is on the hub; otherwise a note says what was left out.

    Returns:
        A line for every two that share records, and one for data left out; nothing if the config
        allows leaks.

    Raises:
        ConfigError: two share records, and the config makes that an error.
        DataError: data is missing, restricted or malformed.
    """
    if config.leaks == "allow":
        return []
    specs = [(name, group, spec) for name, group, spec in _specs(config, clients=clients)]
    left = [name for name, _, spec in specs if not fetch and is_remote(spec)]
    holdings = [
        Holding(name, group, read_entries(spec))
        for name, group, spec in specs
        if name not in left and _is_there(spec)
    ]
    found = [f"leak: {leak}" for leak in find_leaks(holdings)]
    if found and config.leaks == "error":
        raise ConfigError(found)
    if left:
        found.append(f"not compared, as it is on the hub: data of {', '.join(left)}")
    return found


def _specs(config: CommonConfig, *, clients: bool) -> Iterator[tuple[str, str, DataSpec]]:
    for client in config.clients if clients else ():
        yield f"client {client.id!r}", client.role, client.data
    for one in config.evaluation.sets:
        for what, spec in (("data", one.data), ("choices", one.choices)):
            if spec is not None:
                yield f"{what} of set {one.name!r}", one.kind, spec
        if one.holdout is not None:  # nobody may have been told of it, as of a utility set
            yield f"holdout of set {one.name!r}", "utility", one.holdout


def _is_there(spec: DataSpec) -> bool:
    """Whether its file is there, or it needs none; what is missing is somebody else's fault."""
    path = local_path(spec)
    return path is None or Path(path).expanduser().exists()
