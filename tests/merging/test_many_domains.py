"""What becomes of each method's update when more of the same, or of the new, joins in."""

from dataclasses import replace

import pytest
import torch

from fedunlearn.merging import MERGE_METHODS, Contribution
from tests.merging.clients import client, drawn, inputs

SAME = ["avg", "firm", "firm_matched", "fisher", "fulm", "fulm_mean", "knots", "task_arithmetic"]
SAME += ["ties", "uniform"]
TENFOLD = ["sum"]


def tenfold(each: Contribution) -> list[Contribution]:
    return [replace(each, client_id=f"{n}", domain=f"d{n}") for n in range(10)]


def test_every_method_is_told_about() -> None:
    assert sorted(SAME + TENFOLD) == list(MERGE_METHODS)


@pytest.mark.parametrize("name", list(MERGE_METHODS))
def test_the_same_forget_domain_ten_times(name: str) -> None:
    """``fulm`` clusters by what task vectors do: ten copies are one cluster, whatever they say."""
    once = drawn("a", shape=(4, 6))
    method = MERGE_METHODS[name]()
    found = [method(inputs(*clients, alpha=0.3)) for clients in (once, tenfold(once[0]))]
    factor = 10.0 if name in TENFOLD else 1.0
    torch.testing.assert_close(factor * found[0], found[1], rtol=1e-6, atol=1e-6 * factor)


def test_unlike_domains_add_up_in_a_sum_over_clusters_and_not_in_firm() -> None:
    """Sixteen domains that share no coordinate: each keeps its whole update, or FIRM's share."""
    unlike = [
        client(f"{n:02}", [float(n == j) for j in range(16)], domain=f"{n}") for n in range(16)
    ]
    norm = {name: MERGE_METHODS[name]()(inputs(*unlike)).norm().item() for name in MERGE_METHODS}
    assert norm["fulm"] == pytest.approx(4.0)
    assert norm["sum"] == pytest.approx(4.0)
    assert norm["firm"] == pytest.approx(0.25)  # equal Fishers everywhere: the mean of all
    assert norm["fulm_mean"] == pytest.approx(0.25)
