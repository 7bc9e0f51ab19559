"""What ``flwr run -c '...'`` may set: the keys of ``[tool.flwr.app.config]`` in pyproject.toml.

=============  ================================================================================
key            meaning
=============  ================================================================================
``config``     a name from ``configs/`` or the path of a YAML file, on every machine
``overrides``  ``key=value`` pairs on top of it, separated by spaces as on a command line
``out``        the run's folder on the server; empty: ``runs/<time>-<name>``
=============  ================================================================================
"""

import shlex
from collections.abc import Mapping
from pathlib import Path

from fedunlearn.config import AnyConfig, load_run
from fedunlearn.errors import ConfigError

RunKeys = Mapping[str, bool | int | float | str]


def config_of(keys: RunKeys) -> AnyConfig:
    """Load the config that the keys name.

    Raises:
        ConfigError: the overrides cannot be split, or the config has faults; all are listed.
    """
    try:
        overrides = shlex.split(str(keys.get("overrides", "")))
    except ValueError as fault:
        raise ConfigError([f"overrides: {fault} in {keys['overrides']!r}"]) from None
    return load_run(str(keys.get("config", "")) or None, overrides)


def folder_of(keys: RunKeys, *, name: str, stamp: str) -> Path:
    """Return the run's folder, absolute; by default ``runs/<stamp>-<name>``."""
    chosen = str(keys.get("out", ""))
    return (Path(chosen).expanduser() if chosen else Path("runs") / f"{stamp}-{name}").absolute()
