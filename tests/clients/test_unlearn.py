"""The client's shell around the job."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from clients.unlearn import UnlearnClient, read_fit, shared_base
from fedunlearn.aggregation import MergeSettings, merge_summaries
from fedunlearn.config import RunConfig
from fedunlearn.data.reading import read_training_records, salted_digest
from fedunlearn.errors import DataError, RunError
from fedunlearn.instructions import encode_instructions
from fedunlearn.models.loading import fingerprint
from fedunlearn.summary import from_wire, wire_bytes
from tests.strategies.federation import federation, job


@pytest.fixture
def config(tmp_path: Path) -> Iterator[RunConfig]:
    shared_base.cache_clear()
    yield federation(tmp_path, "vandal-1")
    shared_base.cache_clear()


def client_of(config: RunConfig, place: int) -> UnlearnClient:
    return UnlearnClient(config.clients[place], config.model, run_job=job)


def test_a_client_says_who_it_is(config: RunConfig) -> None:
    said = client_of(config, 2).get_properties({"salt": "a"})
    digest = said.pop("data_digest")
    assert digest == salted_digest(read_training_records(config.clients[2].data), "a")
    assert digest != client_of(config, 2).get_properties({"salt": "b"})["data_digest"]
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
    assert sum(array.nbytes for array in arrays) == wire_bytes(summary)
    assert summary.meta.kept == config.merges["firm"].alpha


def test_a_client_that_is_not_pooled_sends_a_sixth_and_the_merge_is_the_same(
    config: RunConfig,
) -> None:
    told = config.instructions()
    replies = [
        client_of(config, 0).fit([], {"instructions": encode_instructions(one)})
        for one in (told, replace(told, fisher_kept=1.0))
    ]
    small, whole = (from_wire(*read_fit(reply)) for reply in replies)
    assert (small.meta.kept, whole.meta.kept) == (0.1, 1.0)
    sizes = [
        wire_bytes(summary) - sum(factor.nbytes for factor in summary.adapter.values())
        for summary in (small, whole)
    ]
    assert sizes[0] < 0.2 * sizes[1]
    deltas = [
        merge_summaries([summary], MergeSettings(alpha=alpha)).delta
        for alpha in (0.1, 0.03)
        for summary in (small, whole)
    ]
    for name in whole.fisher:
        assert torch.equal(deltas[0][name], deltas[1][name])
        assert torch.equal(deltas[2][name], deltas[3][name])


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
