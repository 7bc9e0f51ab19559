"""Keeps the libraries below from calling home, changing what a run sees, or fighting over cores."""

import os

_DEFAULTS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # no fresh environment under `uv run`
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # client_gpus=0 keeps clients off the GPU
    # Ray prints these whatever its log level; the round reports such clients itself
    "RAY_DEDUP_LOGS_SKIP_REGEX": r"Task ClientAppActor\.|A worker died or was killed",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of what was begun beside a task that failed
    # Threads of PyTorch that wait for one another soon sleep instead of spinning on: on a machine
    # with other work, spinning makes short tensor operations many times slower.
    "GOMP_SPINCOUNT": "10000",
    "TOKENIZERS_PARALLELISM": "false",  # a simulated client has the threads it was given
}


def go_offline() -> None:
    """Set the switches, where the environment does not set them otherwise.

    Flower, Ray and PyTorch read some of them when they are imported: call this before.
    """
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
