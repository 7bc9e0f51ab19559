"""Whose data is unlearned and whose protected, in words that do not promise more."""

from dataclasses import replace

from fedunlearn.fates import arm_fates, fate_lines, fates
from fedunlearn.report import MissingClient
from tests.reports import report


def test_every_client_has_a_fate_and_missing_ones_their_reason() -> None:
    one = report()
    found = {fate.client_id: fate for fate in fates(one.clients, one.missing, one.merges)}
    assert {name: fate.fate for name, fate in found.items()} == {
        "brewing-0": "unlearned",
        "geography": "protected",
        "signals-0": "not unlearned",
    }
    assert found["signals-0"].detail == "died"
    kept = found["geography"].detail
    assert "a budget holds for it in firm; nothing constrains firm_base, ties, sum" in kept


def test_without_a_budget_nobody_is_protected() -> None:
    one = report()
    free = {name: replace(row, epsilon=None) for name, row in one.merges.items()}
    (retain,) = (fate for fate in fates(one.clients, (), free) if fate.role == "retain")
    assert retain.fate == "not protected"


def test_in_a_run_of_copies_who_is_missing_from_an_arm_is_not_unlearned() -> None:
    clients = [
        {"client_id": "f", "role": "forget", "domain": "x"},
        {"client_id": "g", "role": "forget", "domain": "x"},
        {"client_id": "r", "role": "retain", "domain": "y"},
    ]
    lost = MissingClient("g", "forget", "x", "late", "")
    found = arm_fates(clients, [lost], {"a": ["f", "r"], "b": ["f", "r"]})
    assert [(fate.client_id, fate.fate) for fate in found] == [
        ("f", "unlearned"),
        ("g", "not unlearned"),
        ("r", "protected"),
    ]
    lines = list(fate_lines(found))
    assert lines[0] == "**f** (forget, x): unlearned; it unlearned on every copy of a, b"
    assert "no budget limits the damage" in lines[2]
