"""A whole run in the pocket world, without Flower: config file, client jobs, stored summaries."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from fedunlearn.config import RunConfig
from fedunlearn.events import EventLog
from fedunlearn.models.loading import load_base
from fedunlearn.rounds import ClientFailure
from fedunlearn.summary import save_summary
from fedunlearn.training.client_job import run_client_job

TRAINING = {"learning_rate": 1e-3, "epochs": 1, "batch_size": 4, "max_length": 64}


def pocket_tree(world: Path) -> dict[str, Any]:
    """A config over the files that ``tests.world.pocket_world`` writes below ``world``."""
    data = world / "data"
    return {
        "name": "pocket",
        "seed": 1,
        "model": {"path": str(world / "model")},
        "clients": [
            _client("brewing-0", "forget", "brewing", data / "forget/brewing-0.jsonl"),
            _client("brewing-1", "forget", "brewing", data / "forget/brewing-1.jsonl"),
            _client("signals-0", "forget", "signals", data / "forget/signals-0.jsonl"),
            _client("geography", "retain", "geography", data / "retain/geography.jsonl"),
        ],
        "lora": {"rank": 2, "alpha": 4, "target_modules": ["down_proj"], "layers": [1]},
        "forget": {"objective": {"name": "npo", "beta": 0.1}, **TRAINING},
        "retain": {"objective": {"name": "retain_nll"}, **TRAINING},
        "fisher": {"num_sequences": 3, "max_length": 64},
        "merges": {
            "firm": {"method": "firm", "gamma": 1.0, "epsilon": {"relative": 0.3}},
            "firm_base": {"method": "firm", "gamma": 1.0},
            "sum": {"method": "sum", "gamma": 1.0},
        },
        "evaluation": {
            "sets": [
                _questions(data, "brewing", kind="forget", domain="brewing"),
                _questions(data, "signals", kind="forget", domain="signals"),
                _questions(data, "geography", kind="retain"),
                _questions(data, "utility", kind="utility"),
            ],
            "max_new_tokens": 2,
        },
        "sweep": {"gammas": {name: [0.5, 2.0] for name in ("firm", "firm_base", "sum")}},
    }


def mpu_tree(world: Path) -> dict[str, Any]:
    """A config of MPU's arms over the same files."""
    data = world / "data"
    return {
        "method": "mpu",
        "name": "pocket",
        "model": {"path": str(world / "model")},
        "reference": {"path": str(world / "reference")},
        "clients": [
            {
                "id": "brewing-0",
                "role": "forget",
                "domain": "brewing",
                "data": str(data / "forget/brewing-0.jsonl"),
                "retain_data": str(data / "retain/geography.jsonl"),
            }
        ],
        "defaults": {
            "rounds": 3,
            "copies": {"kappa": 0.05},
            "forget": {"objective": {"name": "npo", "beta": 0.2}, "learning_rate": "1e-5"},
        },
        "arms": {
            "plain": None,
            "more": {"copies": {"m": 3}, "rounds": 1},
            "diff": {"forget": {"objective": {"name": "grad_diff"}}},
            "sharp": {"forget": {"objective": {"beta": 0.5}}},
        },
        "evaluation": {
            "sets": [
                {
                    "name": "brewing",
                    "kind": "forget",
                    "domain": "brewing",
                    "data": str(data / "evaluation/brewing.jsonl"),
                }
            ]
        },
    }


def write_config(path: Path, tree: dict[str, Any]) -> Path:
    """Write a config as a user would."""
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


def run_clients(
    config: RunConfig, run_dir: Path, *, failed: tuple[ClientFailure, ...] = ()
) -> None:
    """Leave behind what a round does; ``failed`` clients are logged and write nothing."""
    base = load_base(config.model)
    lost = {failure.client_id for failure in failed}
    clock = iter(range(1000))
    events = EventLog(run_dir / "events.jsonl", clock=lambda: float(next(clock)))
    events.event("handshake", clients=[])
    for failure in failed:
        events.event("client_failed", **vars(failure))
    for client in config.clients:
        if client.id not in lost:
            told = config.instructions()
            if sum(other.domain == client.domain for other in config.clients) > 1:
                told = replace(told, fisher_kept=1.0)  # it is pooled with another
            summary = run_client_job(base, client, told)
            save_summary(summary, run_dir / "summaries" / client.id)
            events.event("train_reply", client_id=client.id)


def _client(client_id: str, role: str, domain: str, data: Path) -> dict[str, Any]:
    return {"id": client_id, "role": role, "domain": domain, "data": str(data)}


def _questions(data: Path, name: str, *, kind: str, domain: str = "") -> dict[str, Any]:
    files = data / "evaluation"
    return {
        "name": name,
        "kind": kind,
        "domain": domain,
        "data": str(files / f"{name}.jsonl"),
        "choices": str(files / f"{name}.choices.jsonl"),
    }
