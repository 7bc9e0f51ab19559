"""What every merge method promises, checked for each entry of the registry."""

import pkgutil
import random
from dataclasses import replace

import pytest
import torch

import fedunlearn.merging
from fedunlearn.merging import MERGE_METHODS, MergeMethod, TensorInputs
from tests.merging.clients import drawn

CASTS = {"all": "aabbrr", "no retain": "aabb", "no forget": "rr", "one": "a", "only retain": "r"}


@pytest.fixture(params=list(MERGE_METHODS))
def method(request: pytest.FixtureRequest) -> MergeMethod:
    return MERGE_METHODS[request.param]()


@pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS)
def test_finite_float32_of_the_right_shape(method: MergeMethod, cast: str) -> None:
    merged = method(TensorInputs("w", tuple(drawn(cast, shape=(3, 7)))))
    assert merged.shape == (3, 7)
    assert merged.dtype == torch.float32
    assert merged.isfinite().all()


def test_the_order_of_replies_changes_no_bit(method: MergeMethod) -> None:
    clients = drawn("abarbr")
    expected = method(TensorInputs("w", tuple(clients)))
    for seed in range(5):
        random.Random(seed).shuffle(clients)
        assert torch.equal(method(TensorInputs("w", tuple(clients))), expected)


def test_inputs_are_left_alone_and_not_handed_back(method: MergeMethod) -> None:
    clients = drawn("ar")
    before = [client.task_vector.clone() for client in clients]
    method(TensorInputs("w", tuple(clients))).add_(1.0)
    method(TensorInputs("w", tuple(clients[:1]))).add_(1.0)
    for client, task_vector in zip(clients, before, strict=True):
        assert torch.equal(client.task_vector, task_vector)


def test_zero_task_vectors_merge_to_zero(method: MergeMethod) -> None:
    clients = drawn("abr")
    for client in clients:
        client.task_vector.zero_()
    assert not method(TensorInputs("w", tuple(clients))).any()


def test_turning_every_update_around_turns_the_merge_around(method: MergeMethod) -> None:
    clients = drawn("aabr")
    merged = method(TensorInputs("w", tuple(clients)))
    for client in clients:
        client.task_vector.neg_()
    assert torch.equal(method(TensorInputs("w", tuple(clients))), -merged)


@pytest.mark.parametrize(
    "name", [name for name in MERGE_METHODS if not MERGE_METHODS[name].needs_fisher]
)
def test_methods_that_claim_to_need_no_fisher_work_without(name: str) -> None:
    clients = drawn("abr")
    bare = [replace(each, fisher=None) for each in clients]
    found = MERGE_METHODS[name]()(TensorInputs("w", tuple(bare)))
    assert torch.equal(found, MERGE_METHODS[name]()(TensorInputs("w", tuple(clients))))


def test_the_first_line_of_each_docstring_is_a_sentence() -> None:
    for name in MERGE_METHODS:
        assert (MERGE_METHODS[name].__doc__ or "").splitlines()[0].strip()


def test_no_file_of_a_method_was_forgotten() -> None:
    files = {module.name for module in pkgutil.iter_modules(fedunlearn.merging.__path__)}
    entered = {MERGE_METHODS[name].__module__.rpartition(".")[2] for name in MERGE_METHODS}
    assert files - {"interface"} == entered
