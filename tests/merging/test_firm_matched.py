import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.merging import Firm, FirmMatched, settle
from tests.merging.clients import client, cut, drawn, inputs, merge_model, row
from tests.oracles import merge_methods, merging


@given(st.text("abr", min_size=1, max_size=6), st.integers(0, 999))
@settings(deadline=None)
def test_has_firms_support_and_norm_over_the_whole_model(roles: str, seed: int) -> None:
    model = list(cut(drawn(roles, shape=(3, 7), seed=seed), [2, 4, 1]))
    firm, control = (merge_model(method, model) for method in (Firm(), FirmMatched()))
    norms = [math.hypot(*(one.double().norm().item() for one in each)) for each in (firm, control)]
    assert norms[1] == pytest.approx(norms[0], rel=1e-7)
    for one, other in zip(firm, control, strict=True):
        assert torch.equal(one != 0.0, other != 0.0)
    facts = settle(FirmMatched(), lambda: model).facts({}, norms[1])
    assert facts["mask_mismatches"] == 0
    assert facts["relative_norm_mismatch"] < 1e-7
    assert facts["firm_norm"] == pytest.approx(norms[0], rel=1e-7)


def test_agrees_with_the_oracle() -> None:
    model = list(cut(drawn("aabrr", shape=(3, 8)), [5, 3]))
    rows = [[row(each) for each in one.contributions] for one in model]
    firm = [x for one in rows for x in merging.firm(one, 0.3, 1e-8)]
    flat = [merge_methods.firm_uniform(one, 0.3) for one in rows]
    factor = math.hypot(*firm) / math.hypot(*(x for one in flat for x in one))
    for found, expected in zip(merge_model(FirmMatched(), model), flat, strict=True):
        wanted = torch.tensor([factor * x for x in expected])
        torch.testing.assert_close(found.flatten(), wanted, rtol=1e-4, atol=1e-6)


def test_known_values() -> None:
    one = client("a", [3.0, 5.0], domain="a", fisher=[1.0, 0.0])
    two = client("b", [1.0, 4.0], domain="b", fisher=[1.0, 1.0])
    assert FirmMatched()(inputs(one, two)).tolist()[0] == pytest.approx([2.0, 4.0])
    uneven = client("a", [3.0, 5.0], domain="a", fisher=[1.0, 1.0 / 3.0])
    found = FirmMatched()(inputs(uneven, two))
    norm = math.hypot(2.0, (5.0 / 3.0 + 4.0) / (4.0 / 3.0))
    factor = norm / math.hypot(2.0, 4.5)
    assert found.tolist()[0] == pytest.approx([2.0 * factor, 4.5 * factor])


def test_equal_weights_leave_nothing_to_match() -> None:
    clients = [replace(c, fisher=torch.ones(4, 5)) for c in drawn("abrr")]
    torch.testing.assert_close(FirmMatched()(inputs(*clients)), Firm()(inputs(*clients)))


def test_no_weight_at_all() -> None:
    silent = client("a", [1.0, 2.0], fisher=[0.0, 0.0])
    settled = settle(FirmMatched(), lambda: [inputs(silent)])
    assert not settled(inputs(silent)).any()
    assert settled.facts({}, 0.0)["relative_norm_mismatch"] == 0.0
