import pytest

from fedunlearn.errors import SummaryError
from fedunlearn.summary import check_consistent
from tests.pico import changed, pico_round, pico_summary


def test_order_is_by_client_id() -> None:
    ordered = check_consistent(list(reversed(pico_round())))
    assert [s.meta.client_id for s in ordered] == ["bio-0", "bio-1", "keep-0", "keep-1", "law-0"]


def test_none_at_all() -> None:
    with pytest.raises(SummaryError, match="no summary"):
        check_consistent([])


def test_one_id_twice() -> None:
    with pytest.raises(SummaryError, match="two summaries are from client 'bio-0'"):
        check_consistent([pico_summary(seed=1), pico_summary(seed=2)])


def test_another_base_model_names_both_clients() -> None:
    other = changed(pico_summary("keep-0", "retain"), base_model_sha256="cd" * 32)
    with pytest.raises(SummaryError, match=r"'bio-0'.*'keep-0'.*different base models"):
        check_consistent([pico_summary(), other])


def test_other_weights_name_both_clients_and_the_weight() -> None:
    other = pico_summary("keep-0", "retain", target_modules=["up_proj", "down_proj"])
    with pytest.raises(SummaryError, match=r"'bio-0'.*only 'keep-0' has .*0\.mlp\.up_proj"):
        check_consistent([pico_summary(), other])


def test_other_shapes_name_both_clients() -> None:
    other = changed(pico_summary("keep-0", "retain"), layout_digest="0" * 64)
    with pytest.raises(SummaryError, match=r"'bio-0'.*'keep-0'.*different shapes"):
        check_consistent([pico_summary(), other])


def test_other_orientation_names_both_clients() -> None:
    other = changed(pico_summary("keep-0", "retain"))
    other.adapter_config["fan_in_fan_out"] = True  # type: ignore[index]
    with pytest.raises(SummaryError, match=r"'bio-0'.*'keep-0'.*fan_in_fan_out"):
        check_consistent([pico_summary(), other])


def test_other_ranks_fit_together() -> None:
    check_consistent([pico_summary(), pico_summary("keep-0", "retain", r=8)])
