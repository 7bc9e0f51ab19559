"""Composition root of the server: a Flower ServerApp that does one FIRM round.

``app`` is what ``flwr run`` starts: it reads the app's ``config``, ``overrides`` and ``out`` keys,
does the round and hands over to the pipeline, which merges, evaluates and reports.
"""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedunlearn.config import RunConfig
from fedunlearn.errors import FedUnlearnError
from fedunlearn.events import EVENTS_FILE, EventLog, Listener
from fedunlearn.pipeline import finish, prepare
from fedunlearn.rounds import RoundRules
from fedunlearn.run_keys import config_of, folder_of
from strategies.exchange import Patience
from strategies.firm import FirmStrategy

NODES_S = 60.0  # for all nodes to be there
HANDSHAKE_S = 600.0  # for all to load the base model and say who they are

logger = logging.getLogger("flwr.fedunlearn")  # shown wherever Flower's own log is

Main = Callable[[Grid, Context], None]


def never() -> bool:
    """Nobody stops the round."""
    return False


def federate(
    grid: Grid,
    config: RunConfig,
    run_dir: Path,
    *,
    listener: Listener | None = None,
    stopped: Callable[[], bool] = never,
) -> tuple[str, ...]:
    """Do the round: afterwards ``run_dir/summaries`` holds one folder a client.

    Args:
        grid: Flower's way to the nodes.
        config: the run's.
        run_dir: its folder; ``events.jsonl`` is continued there.
        listener: told of every event, see :class:`EventLog`.
        stopped: true once nobody waits for the round any more.

    Returns:
        Warnings for the report, see :func:`fedunlearn.rounds.decide`.

    Raises:
        InputError: the folder already holds summaries.
        RunError: see :meth:`FirmStrategy.run`.
    """
    rules = RoundRules(
        nodes_s=NODES_S,
        handshake_s=HANDSHAKE_S,
        deadline_s=config.federation.deadline_s,
        allow_partial=config.federation.allow_partial,
    )
    events = EventLog(run_dir / EVENTS_FILE, clock=time.time, listener=listener)
    strategy = FirmStrategy(
        config.instructions(),
        run_dir=run_dir,
        rules=rules,
        events=events,
        patience=Patience(clock=time.monotonic, sleep=time.sleep, stopped=stopped),
        expected=config.clients,
        num_nodes=config.federation.expected_clients,
    )
    strategy.summary()
    try:
        strategy.run(grid)
    except FedUnlearnError as fault:
        events.event("round_failed", error=str(fault))
        raise
    return strategy.warnings


def make_server_app(main: Main) -> ServerApp:
    """Wrap a function of grid and context as Flower's ServerApp."""
    server = ServerApp()
    server.main()(main)
    return server


def main(grid: Grid, context: Context) -> None:
    """Do a whole run, from the config to the report; what ``flwr run`` starts.

    Raises:
        FedUnlearnError: the run has no result; Flower then shows it as failed.
    """
    config = config_of(context.run_config)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    run_dir = folder_of(context.run_config, name=config.name, stamp=stamp)
    logger.info("run folder: %s", run_dir)
    notes = prepare(config, run_dir)
    warnings = [*notes, *federate(grid, config, run_dir, listener=log_event)]
    finish(run_dir, config, warnings=warnings)
    logger.info("done: %s", run_dir / "report.md")


def log_event(event: str, fields: Mapping[str, Any]) -> None:
    """Tell a person one line of an event."""
    shown = ("client_id", "role", "domain", "reason", "present", "expected", "error")
    logger.info("%s %s", event, {key: fields[key] for key in shown if key in fields})


app = make_server_app(main)
