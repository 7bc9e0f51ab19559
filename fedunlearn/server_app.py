"""Composition root of the server: a Flower ServerApp that does one FIRM round.

``app`` is what ``flwr run`` starts: it reads the app's ``config``, ``overrides`` and ``out`` keys,
does the round and hands over to the pipeline, which merges, evaluates and reports.
"""

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedunlearn.aggregation import merge_summaries
from fedunlearn.arms import Bench, finish_arms
from fedunlearn.config import AnyConfig, ArmSettings, FederationSettings, MpuConfig, RunConfig
from fedunlearn.copies.update import CopyTicket
from fedunlearn.errors import FedUnlearnError
from fedunlearn.evaluation.own_data import write_own
from fedunlearn.events import EVENTS_FILE, EventLog, Listener
from fedunlearn.instructions import encode_copy_instructions
from fedunlearn.models.adapted import adapted_shapes
from fedunlearn.pipeline import (
    SUMMARIES_FOLDER,
    finish,
    prepare,
    read_notes,
    round_is_over,
    round_warnings,
    unfinished,
)
from fedunlearn.rounds import Roster, RoundRules
from fedunlearn.run_keys import config_of, folder_of
from fedunlearn.summary import open_summaries
from strategies.attendance import Attendance
from strategies.evaluating import evaluate_clients
from strategies.exchange import Patience
from strategies.firm import FirmStrategy
from strategies.mpu import MpuStrategy

NODES_S = 60.0  # for all nodes to be there
HANDSHAKE_S = 600.0  # for all to load the base model and say who they are

SPOOL = ".incoming"

logger = logging.getLogger("flwr.fedunlearn")  # shown wherever Flower's own log is

Main = Callable[[Grid, Context], None]


def never() -> bool:
    """Nobody stops the round."""
    return False


def federate(
    grid: Grid,
    config: AnyConfig,
    run_dir: Path,
    *,
    listener: Listener | None = None,
    stopped: Callable[[], bool] = never,
) -> tuple[str, ...]:
    """Do the rounds of a run.

    Afterwards ``run_dir/summaries`` holds one folder a client (FIRM), or ``run_dir/unlearned``
    one an arm (MPU).

    Args:
        grid: Flower's way to the nodes.
        config: the run's.
        run_dir: its folder; ``events.jsonl`` is continued there.
        listener: told of every event, see :class:`EventLog`.
        stopped: true once nobody waits for the rounds any more.

    Returns:
        Warnings for the report, see :func:`fedunlearn.rounds.decide`.

    Raises:
        InputError: the folder already holds summaries; or a model does not fit (MPU).
        RunError: a client is missing or failed, or the clients do not fit together.
    """
    events = EventLog(run_dir / EVENTS_FILE, clock=time.time, listener=listener)
    patience = Patience(clock=time.monotonic, sleep=time.sleep, stopped=stopped)
    try:
        if isinstance(config, MpuConfig):
            return _federate_copies(grid, config, run_dir, events=events, patience=patience)
        return _federate_summaries(grid, config, run_dir, events=events, patience=patience)
    except FedUnlearnError as fault:
        events.event("round_failed", error=str(fault))
        raise


def _rules(federation: FederationSettings) -> RoundRules:
    return RoundRules(
        nodes_s=NODES_S,
        handshake_s=HANDSHAKE_S,
        deadline_s=federation.deadline_s,
        allow_partial=federation.allow_partial,
        min_forget_per_domain=federation.min_forget_per_domain,
        require_all_retain=federation.require_all_retain,
        outliers=federation.outliers,
        outlier_threshold=federation.outlier_threshold,
        max_upload_bytes=federation.max_upload_bytes,
    )


def _federate_summaries(
    grid: Grid, config: RunConfig, run_dir: Path, *, events: EventLog, patience: Patience
) -> tuple[str, ...]:
    strategy = FirmStrategy(
        config.instructions(),
        run_dir=run_dir,
        rules=_rules(config.federation),
        events=events,
        patience=patience,
        expected=config.clients,
        num_clients=config.federation.expected_clients,
        num_nodes=config.federation.expected_nodes,
        weights=adapted_shapes(config.model, config.lora),
        salt=secrets.token_hex(16),
    )
    strategy.summary()
    outcome = strategy.run(grid)
    if (name := config.federation.evaluate) is not None:
        summaries = open_summaries(run_dir / SUMMARIES_FOLDER)
        found = evaluate_clients(
            grid,
            Roster(tuple(h for h in strategy.roster.hellos if h.client_id in outcome.received)),
            merge_summaries(summaries, config.merges[name]).delta,
            name,
            limit_s=config.federation.deadline_s,
            events=events,
            patience=patience,
        )
        write_own(found, run_dir)
    return strategy.warnings


def _federate_copies(
    grid: Grid, config: MpuConfig, run_dir: Path, *, events: EventLog, patience: Patience
) -> tuple[str, ...]:
    attendance = Attendance(
        rules=_rules(config.federation),
        events=events,
        patience=patience,
        expected=config.clients,
        num_clients=config.federation.expected_clients,
        num_nodes=config.federation.expected_nodes,
        salt=secrets.token_hex(16),
    )
    doubts: list[str] = []
    bench = Bench(config, run_dir)
    for arm in bench.arms():
        strategy = MpuStrategy(
            arm.rounds,
            instruct=partial(_copy_instructions, arm.settings, config.seed),
            attendance=attendance,
            spool=run_dir / SPOOL / arm.name,
            lora=arm.settings.lora,
        )
        strategy.summary()
        start = time.monotonic()
        strategy.run(grid)
        seconds = round(time.monotonic() - start, 3)
        outcome = bench.write(arm, seconds=seconds, bytes_uploaded=strategy.largest_update)
        events.event("arm_done", name=outcome.name, seconds=seconds, norm=outcome.norm)
        doubts += strategy.warnings
    lost = (f"{failure}; {failure.consequence}" for failure in attendance.absent)
    return (*lost, *doubts)


def _copy_instructions(chosen: ArmSettings, seed: int, ticket: CopyTicket) -> str:
    return encode_copy_instructions(chosen.instructions(seed, ticket))


def make_server_app(main: Main) -> ServerApp:
    """Wrap a function of grid and context as Flower's ServerApp."""
    server = ServerApp()
    server.main()(main)
    return server


def main(grid: Grid, context: Context) -> None:
    """Do a whole run, from the config to the report; what ``flwr run`` starts.

    A folder with an unfinished run of the same config is gone on with: what came is not asked
    for again.

    Raises:
        FedUnlearnError: the run has no result; Flower then shows it as failed.
    """
    config = config_of(context.run_config)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    run_dir = folder_of(context.run_config, name=config.name, stamp=stamp)
    logger.info("run folder: %s", run_dir)
    if unfinished(config, run_dir):
        logger.info("going on with an unfinished run")
        notes = read_notes(run_dir)
    else:
        notes = prepare(config, run_dir)
    if isinstance(config, MpuConfig):
        told = federate(grid, config, run_dir, listener=log_event)
        finish_arms(run_dir, config, warnings=[*notes, *told])
    else:
        if not round_is_over(run_dir):
            federate(grid, config, run_dir, listener=log_event)
        finish(run_dir, config, warnings=[*notes, *round_warnings(run_dir)])
    logger.info("done: %s", run_dir / "report.md")


def log_event(event: str, fields: Mapping[str, Any]) -> None:
    """Tell a person one line of an event."""
    shown = ("client_id", "role", "domain", "reason", "present", "expected", "error")
    logger.info("%s %s", event, {key: fields[key] for key in shown if key in fields})


app = make_server_app(main)
