"""Summaries get their final names only when the round is over."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedunlearn.errors import InputError, SummaryError
from fedunlearn.training.client_job import run_client_job
from strategies.spool import Spool
from tests.strategies.federation import federation
from tests.world import pocket_model


def test_only_published_summaries_are_visible_and_only_valid_ones_are_kept(tmp_path: Path) -> None:
    config = federation(tmp_path)
    summary = run_client_job(pocket_model(), config.clients[0], config.instructions())
    other = replace(summary, meta=replace(summary.meta, client_id="odd"))
    spool = Spool(tmp_path / "run")
    spool.prepare()
    spool.keep(summary)
    spool.keep(other)
    with pytest.raises(SummaryError):
        spool.keep(replace(summary, fisher={}))
    assert not spool.summaries.exists()
    spool.publish(["f-1"])
    assert [path.name for path in spool.summaries.iterdir()] == ["f-1"]
    assert not spool.incoming.exists()
    with pytest.raises(InputError, match="already holds summaries"):
        spool.prepare()


def test_what_an_interrupted_round_left_is_cleared_away(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    (spool.incoming / "stale").mkdir(parents=True)
    spool.prepare()
    assert list(spool.incoming.iterdir()) == []
