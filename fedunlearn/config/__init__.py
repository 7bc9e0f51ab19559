"""The configuration: YAML and overrides in, one typed and checked :class:`RunConfig` out."""

from fedunlearn.config.evaluating import RetrainConfig, load_retraining, load_suite
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
    "RetrainConfig",
    "RunConfig",
    "SweepSettings",
    "builtin_configs",
    "check_config",
    "check_files",
    "leak_notes",
    "load_config",
    "load_merge",
    "load_retraining",
    "load_suite",
    "to_yaml",
]
