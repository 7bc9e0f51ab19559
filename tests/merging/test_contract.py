"""What every merge method promises, checked for each entry of the registry and its options."""

import json
import math
import pkgutil
import random
from dataclasses import fields, replace

import pytest
import torch

import fedunlearn.merging
from fedunlearn.errors import InputError, SummaryError
from fedunlearn.merging import (
    MERGE_METHODS,
    Firm,
    FisherMerge,
    Fulm,
    Knots,
    MergeMethod,
    TaskArithmetic,
    TensorInputs,
    Ties,
    settle,
)
from fedunlearn.roles import Role
from tests.merging.clients import cut, drawn, low_rank, merge_model

CASTS = {"all": "aabbrr", "no retain": "aabb", "no forget": "rr", "one": "a", "only retain": "r"}


ENTRIES = {name: MERGE_METHODS[name]() for name in MERGE_METHODS}
VARIANTS = {
    "firm A1": Firm(normalize=False),
    "firm A2": Firm(weights="uniform"),
    "firm A2 dense": Firm(weights="dense"),
    "fisher with a floor": FisherMerge(floor=1e-6),
    "fulm of forget clients": Fulm(clients="forget", threshold=0.0),
    "fulm across the model": Fulm(scope="model", linkage="average"),
    "knots of all, trimmed": Knots(clients="all", density=0.4),
    "knots, plain factors": Knots(factor="plain", density=0.4),
    "task_arithmetic twice": TaskArithmetic(scaling=2.0),
    "ties across the model": Ties(scope="model"),
    "ties with the majority": Ties(clients="all", zero_sign="majority"),
    "ties with the model's majority": Ties(scope="model", zero_sign="majority"),
}
METHODS = ENTRIES | VARIANTS
ROLES: dict[str, Role] = {f"client-{n}": "retain" if n == 3 else "forget" for n in range(4)}


@pytest.fixture(params=list(METHODS.values()), ids=list(METHODS))
def method(request: pytest.FixtureRequest) -> MergeMethod:
    found: MergeMethod = request.param
    return found


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


def test_the_order_of_replies_changes_no_bit_of_a_model(method: MergeMethod) -> None:
    clients = drawn("abarbr", shape=(3, 7))
    expected = merge_model(method, list(cut(clients, [2, 5])))
    for seed in range(3):
        random.Random(seed).shuffle(clients)
        found = merge_model(method, list(cut(clients, [2, 5])))
        assert all(map(torch.equal, found, expected))


def test_a_method_that_does_not_survey_is_settled_already(method: MergeMethod) -> None:
    model = list(cut(drawn("abr", shape=(3, 7)), [2, 5]))
    settled = settle(method, lambda: model)
    assert not settled.surveys
    assert (settled is method) == (not method.surveys)
    assert settled.needs_fisher == method.needs_fisher or not settled.needs_fisher


def test_alone_a_tensor_is_the_whole_model(method: MergeMethod) -> None:
    inputs = TensorInputs("w", tuple(drawn("abr", shape=(3, 7))))
    assert torch.equal(method(inputs), settle(method, lambda: [inputs])(inputs))


def test_facts_are_json(method: MergeMethod) -> None:
    model = list(cut(drawn("abbr", shape=(3, 7)), [2, 5]))
    facts = settle(method, lambda: model).facts(ROLES, 1.0)
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts


def test_the_work_is_done_in_float64_or_on_float32_values(method: MergeMethod) -> None:
    small = drawn("aabr", shape=(3, 7))
    large = [replace(c, update=c.task_vector * 2.0**20) for c in small]
    found = [method(TensorInputs("w", tuple(clients))) for clients in (small, large)]
    torch.testing.assert_close(found[0] * 2.0**20, found[1])


def test_a_product_merges_as_it_does_multiplied_out(method: MergeMethod) -> None:
    clients = low_rank("aabrr", shape=(6, 8), rank=2)
    bare = [replace(client, update=client.task_vector) for client in clients]
    found = [method(TensorInputs("w", tuple(each), alpha=0.3)) for each in (clients, bare)]
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize("name", [name for name in ENTRIES if ENTRIES[name].needs_fisher])
def test_methods_that_need_a_fisher_say_whose_is_missing(name: str) -> None:
    clients = drawn("abr")
    clients[1] = replace(clients[1], fisher=None)
    with pytest.raises(SummaryError, match="client 'client-1' has no Fisher"):
        ENTRIES[name](TensorInputs("w", tuple(clients)))


def test_the_first_line_of_each_docstring_is_a_sentence() -> None:
    for name in MERGE_METHODS:
        first = (MERGE_METHODS[name].__doc__ or "").splitlines()[0]
        assert first.endswith(".")
        assert len(f"{max(MERGE_METHODS, key=len)}  {first}") <= 80  # one line of a terminal


def test_every_option_is_explained_and_has_a_default() -> None:
    for name, entry in ENTRIES.items():
        for option in fields(entry):  # type: ignore[arg-type]
            texts = [kind.__doc__ or "" for kind in MERGE_METHODS[name].__mro__]
            assert any(f"    {option.name}: " in text for text in texts), (name, option.name)


def test_bad_options_are_refused_by_name() -> None:
    for name, options in {
        "task_arithmetic": {"scaling": math.nan},
        "fisher": {"floor": -1.0},
        "fulm": {"threshold": 1.5},
        "fulm_mean": {"density": 0.0},
        "knots": {"density": 1.5},
        "firm": {"weights": "uniform", "normalize": False},
        "ties": {"zero_sign": "minority"},
    }.items():
        with pytest.raises(InputError, match=next(iter(options))):
            MERGE_METHODS.build(name, options)


def test_no_file_of_a_method_was_forgotten() -> None:
    files = {module.name for module in pkgutil.iter_modules(fedunlearn.merging.__path__)}
    entered = {MERGE_METHODS[name].__module__.rpartition(".")[2] for name in MERGE_METHODS}
    assert files - {"contribution", "inputs", "interface"} == entered
