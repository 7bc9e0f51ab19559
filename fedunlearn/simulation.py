"""Runs the round on this machine: Flower's simulation engine, clients in Ray actors.

Flower's worker pool keeps actors whose process died, and then fails whatever client they are given
next. Ray restarts actors when asked to, so it is asked to: a client whose process dies is run a
second time by a fresh process, and if that dies too only this client fails.
"""

import logging
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedunlearn.offline import go_offline

go_offline()  # before Flower and Ray are imported

from flwr.app import Context  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

from fedunlearn.client_app import make_client_app  # noqa: E402
from fedunlearn.config import AnyConfig, FederationSettings, MpuConfig  # noqa: E402
from fedunlearn.errors import RunError  # noqa: E402
from fedunlearn.progress import Progress  # noqa: E402
from fedunlearn.server_app import federate, make_server_app  # noqa: E402
from strategies.spool import Spool  # noqa: E402

_CLIENT_OVER = (
    "train_reply",
    "copy_reply",
    "evaluation",
    "client_failed",
    "client_absent",
    "client_missing",
)


def simulate(
    config: AnyConfig,
    run_dir: Path,
    *,
    progress: Progress | None = None,
    verbose: bool = False,
    client_app: ClientApp | None = None,
) -> tuple[str, ...]:
    """Do the rounds of ``config`` with simulated clients.

    Args:
        config: the run's; ``federation`` says how many clients run at once and on what.
        run_dir: the run's folder; ``summaries`` and ``events.jsonl`` are written there.
        progress: called with (clients done, clients in all).
        verbose: let Flower and Ray log.
        client_app: what the nodes run; replaced in tests only.

    Returns:
        Warnings for the report, see :func:`fedunlearn.rounds.decide`.

    Raises:
        InputError: the folder already holds summaries.
        RunError: a client failed, or the simulation itself did; the text says which and why.
    """
    if not isinstance(config, MpuConfig):
        Spool(run_dir).check_unused()
    round_ = _Round(config, run_dir, progress)
    with quiet_logs(verbose=verbose):
        try:
            run_simulation(
                server_app=make_server_app(round_.main),
                client_app=client_app or make_client_app(lambda _: config),
                num_supernodes=len(config.clients),
                backend_config=backend_config(config.federation, verbose=verbose),
                verbose_logging=verbose,
            )
        except Exception as fault:  # Flower's own; the round's is in `round_`
            round_.engine_fault = fault
        finally:
            round_.stop.set()
    return round_.result()


class _Round:
    """Carries the round's outcome out of Flower's server thread."""

    def __init__(self, config: AnyConfig, run_dir: Path, progress: Progress | None) -> None:
        self.stop = threading.Event()
        self.engine_fault: Exception | None = None
        self._config = config
        self._run_dir = run_dir
        self._progress = progress
        self._done, self._total = 0, steps_of(config)
        self._fault: Exception | None = None
        self._warnings: tuple[str, ...] | None = None

    def main(self, grid: Grid, context: Context) -> None:
        """Do the round and keep what came of it; what it raises is raised by :meth:`result`."""
        try:
            self._warnings = federate(
                grid,
                self._config,
                self._run_dir,
                listener=self._listen,
                stopped=self.stop.is_set,
            )
        except Exception as fault:  # raised again, unchanged, in the caller's thread
            self._fault = fault

    def _listen(self, event: str, fields: Mapping[str, Any]) -> None:
        if event in _CLIENT_OVER:
            self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total)

    def result(self) -> tuple[str, ...]:
        """Return the round's warnings, or raise why there are none."""
        if self._fault is not None and self.engine_fault is None:
            raise self._fault
        if self.engine_fault is not None:
            cause: BaseException = self.engine_fault
            while cause.__cause__ is not None:  # Flower wraps what Ray says, more than once
                cause = cause.__cause__
            raise RunError(f"the simulation failed: {cause}") from self.engine_fault
        if self._warnings is None:
            raise RunError("the simulation ended before the round was over")
        return self._warnings


def steps_of(config: AnyConfig) -> int:
    """How many answers a run waits for."""
    if isinstance(config, MpuConfig):
        answers = sum(arm.rounds * arm.copies_a_round for arm in config.arms.values())
    else:
        answers = 1 if config.federation.evaluate is None else 2
    return answers * len(config.clients)


def backend_config(federation: FederationSettings, *, verbose: bool = False) -> dict[str, Any]:
    """Say how Flower is to use Ray.

    ``max_restarts`` and ``max_task_retries`` are options of Ray actors; Flower hands on every
    number given among the client resources.
    """
    init_args: dict[str, Any] = {"include_dashboard": False, "log_to_driver": verbose}
    init_args["logging_level"] = logging.INFO if verbose else logging.CRITICAL
    if federation.workers is not None:
        init_args["num_cpus"] = federation.workers * federation.client_cpus
    return {
        "init_args": init_args,
        "client_resources": {
            "num_cpus": federation.client_cpus,
            "num_gpus": federation.client_gpus,
            "max_restarts": -1,
            "max_task_retries": 1,
        },
    }


@contextmanager
def quiet_logs(*, verbose: bool) -> Iterator[None]:
    """Silence Flower's and Ray's loggers for the block; failures are reported by the round."""
    levels = {name: logging.getLogger(name).level for name in ("flwr", "ray")}
    for name in () if verbose else levels:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            # Ray announces a change of the GPU visibility that `go_offline` pins down.
            warnings.filterwarnings("ignore", "Tip: In future versions of Ray", FutureWarning)
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
