"""The configuration: YAML and overrides in, one typed and checked :class:`RunConfig` out."""

from fedunlearn.config.holdings import leak_notes
from fedunlearn.config.loading import (
    builtin_configs,
    check_config,
    check_files,
    load_config,
    load_merge,
    to_yaml,
)
from fedunlearn.config.schema import FederationSettings, RunConfig, SweepSettings

__all__ = [
    "FederationSettings",
    "RunConfig",
    "SweepSettings",
    "builtin_configs",
    "check_config",
    "check_files",
    "leak_notes",
    "load_config",
    "load_merge",
    "to_yaml",
]
