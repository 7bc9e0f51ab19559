"""The client's shell around the job."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.unlearn import UnlearnClient, read_fit, shared_base
from fedunlearn.config import RunConfig
from fedunlearn.errors import DataError, RunError
from fedunlearn.instructions import encode_instructions
from fedunlearn.models.loading import fingerprint
from fedunlearn.summary import from_wire
from tests.strategies.federation import federation, job


@pytest.fixture
def config(tmp_path: Path) -> Iterator[RunConfig]:
    shared_base.cache_clear()
    yield federation(tmp_path, "vandal-1")
    shared_base.cache_clear()


def client_of(config: RunConfig, place: int) -> UnlearnClient:
    return UnlearnClient(config.clients[place], config.model, run_job=job)


def test_a_client_says_who_it_is(config: RunConfig) -> None:
    said = client_of(config, 2).get_properties({})
    base = shared_base(config.model)
    assert said == {
        "client_id": "r-1",
        "role": "retain",
        "domain": "geography",
        "num_examples": 4,
        "base_model": base.name,
        "base_model_sha256": base.sha256,
    }


def test_missing_data_is_said_in_the_handshake(config: RunConfig) -> None:
    Path(config.clients[0].data).unlink()
    with pytest.raises(DataError, match=r"data\.jsonl"):
        client_of(config, 0).get_properties({})


def test_what_a_fit_returns_is_a_whole_summary(config: RunConfig) -> None:
    told = {"instructions": encode_instructions(config.instructions())}
    arrays, num_examples, labels = client_of(config, 0).fit([], dict(told))
    summary = from_wire(*read_fit((arrays, num_examples, labels)))
    assert (summary.meta.client_id, num_examples) == ("f-1", 4)
    assert len(arrays) == len(summary.adapter) + len(summary.fisher)


def test_the_base_model_is_loaded_once_and_left_as_it_was(config: RunConfig) -> None:
    base = shared_base(config.model)
    told = encode_instructions(config.instructions())
    for place in range(3):
        client_of(config, place).fit([], {"instructions": told})
    assert shared_base(config.model) is base
    assert shared_base.cache_info().misses == 1
    assert fingerprint(base.model) == base.sha256


def test_a_job_that_changes_the_base_model_fails_and_the_next_client_gets_a_fresh_one(
    config: RunConfig,
) -> None:
    spoilt = shared_base(config.model)
    told = encode_instructions(config.instructions())
    with pytest.raises(RunError, match="changed the shared base model"):
        client_of(config, 3).fit([], {"instructions": told})
    fresh = shared_base(config.model)
    assert fresh is not spoilt
    assert fingerprint(fresh.model) == fresh.sha256


def test_instructions_of_another_version_are_refused_by_name(config: RunConfig) -> None:
    told = encode_instructions(config.instructions()).replace('"seed"', '"sead"')
    with pytest.raises(RunError, match="sead"):
        client_of(config, 0).fit([], {"instructions": told})
