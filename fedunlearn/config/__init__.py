"""The configuration: YAML and overrides in, one typed and checked :class:`RunConfig` out."""

from fedunlearn.config.evaluating import (
    RetrainConfig,
    load_probes,
    load_retraining,
    load_suite,
)
from fedunlearn.config.holdings import leak_notes
from fedunlearn.config.loading import (
    AnyConfig,
    builtin_configs,
    check_config,
    check_files,
    load_config,
    load_merge,
    load_run,
    to_yaml,
)
from fedunlearn.config.mpu import ArmSettings, MpuConfig
from fedunlearn.config.schema import CommonConfig, FederationSettings, RunConfig, SweepSettings

__all__ = [
    "AnyConfig",
    "ArmSettings",
    "CommonConfig",
    "FederationSettings",
    "MpuConfig",
    "RetrainConfig",
    "RunConfig",
    "SweepSettings",
    "builtin_configs",
    "check_config",
    "check_files",
    "leak_notes",
    "load_config",
    "load_merge",
    "load_probes",
    "load_retraining",
    "load_run",
    "load_suite",
    "to_yaml",
]
