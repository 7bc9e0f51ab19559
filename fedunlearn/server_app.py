"""Composition root of the server: a Flower ServerApp that does one FIRM round.

``app`` is what ``flwr run`` starts: it reads the app's ``config``, ``overrides`` and ``out`` keys,
does the round and hands over to the pipeline, which merges, evaluates and reports.
"""

import time
from collections.abc import Callable
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedunlearn.config import RunConfig
from fedunlearn.errors import FedUnlearnError
from fedunlearn.events import EventLog, Listener
from fedunlearn.rounds import RoundRules
from strategies.exchange import Patience
from strategies.firm import FirmStrategy

NODES_S = 120.0
HANDSHAKE_S = 600.0

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
    deadline = config.federation.deadline_s
    rules = RoundRules(
        nodes_s=min(NODES_S, deadline),
        handshake_s=min(HANDSHAKE_S, deadline),
        deadline_s=deadline,
        allow_partial=config.federation.allow_partial,
    )
    events = EventLog(run_dir / "events.jsonl", clock=time.time, listener=listener)
    strategy = FirmStrategy(
        config.instructions(),
        run_dir=run_dir,
        rules=rules,
        events=events,
        patience=Patience(clock=time.monotonic, sleep=time.sleep, stopped=stopped),
        expected=config.clients,
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
