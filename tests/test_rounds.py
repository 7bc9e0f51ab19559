"""The bookkeeping of a round: who is there, who delivered, what may go on."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedunlearn.errors import RunError
from fedunlearn.rounds import (
    Addressee,
    ClientFailure,
    Hello,
    RoundOutcome,
    absent,
    build_roster,
    decide,
    odd_layouts,
    strangers,
)


@dataclass(frozen=True)
class Expected:
    id: str
    role: str
    domain: str


def hello(client_id: str, *, role: str = "forget", domain: str = "bio", node: int = 0) -> Hello:
    return Hello(
        node_id=node or hash(client_id),
        client_id=client_id,
        role=role,
        domain=domain,
        num_examples=4,
        base_model="pico",
        base_model_sha256="a" * 64,
    )


FAILED = ClientFailure("f1", "forget", "bio", "ValueError: boom")
MISSING = ClientFailure("r1", "retain", "general", "too late")


@given(st.permutations([hello(f"c{i}", node=10 - i) for i in range(5)]))
def test_the_roster_does_not_depend_on_the_order_of_answers(answers: list[Hello]) -> None:
    assert [one.node_id for one in build_roster(answers).addressees] == [10, 9, 8, 7, 6]


def test_an_id_used_twice_is_named_with_its_roles() -> None:
    twins = [hello("a", node=1), hello("a", role="retain", node=2), hello("b", node=3)]
    with pytest.raises(
        RunError, match=r"'a' is used by 2 clients \(forget/bio at node 1, retain/bio"
    ):
        build_roster(twins)


def test_an_unknown_role_is_named() -> None:
    with pytest.raises(RunError, match="client 'a': unknown role 'forgett'"):
        build_roster([hello("a", role="forgett")])


def test_different_base_models_are_named_with_their_clients() -> None:
    other = replace(hello("b", node=2), base_model_sha256="b" * 64)
    with pytest.raises(RunError, match=r"aaaaaaaaaaaa \(pico\) at a; bbbbbbbbbbbb \(pico\) at b"):
        build_roster([hello("a", node=1), other])


def test_all_handshake_faults_are_listed_at_once() -> None:
    expected = [Expected("a", "retain", "bio")]
    with pytest.raises(RunError) as caught:
        build_roster([hello("a", node=1), hello("x", role="?", node=2)], expected)
    assert "its node says forget/bio, the run expects retain/bio" in str(caught.value)
    assert "'x' is not in this run's list" in str(caught.value)
    assert "unknown role '?'" in str(caught.value)


def test_expected_clients_that_are_not_there_are_named() -> None:
    expected = [Expected("b", "retain", "general"), Expected("a", "forget", "bio")]
    roster = build_roster([hello("a")], expected)
    assert absent(roster, expected, "silence") == (
        ClientFailure("b", "retain", "general", "silence"),
    )


def test_clients_that_nobody_listed_are_counted() -> None:
    roster = build_roster([hello("c1"), hello("c2")])
    assert strangers(roster, answered=2, wanted=2) == ()
    (lacking,) = strangers(roster, answered=3, wanted=4)  # one answered with a failure
    assert str(lacking).startswith("unknown role client 'client 4 of 4' (unknown domain): no node")
    assert lacking.consequence.endswith("is left out")
    with pytest.raises(RunError, match=r"2 clients .*c1, c2.* expects 1: .*expected_clients=2"):
        strangers(roster, answered=2, wanted=1)


def test_a_roster_finds_the_clients_of_its_nodes_and_no_others() -> None:
    both = hello("a", node=7), hello("b", role="retain", domain="law", node=7)
    roster = build_roster(both)
    assert roster.addressees == (Addressee(7, "a"), Addressee(7, "b"))
    assert [roster.find(Addressee(7, name)) for name in "ab"] == list(both)
    assert roster.find(Addressee(8, "a")) is None
    assert roster.find(Addressee(7, "c")) is None


def test_forget_clients_of_one_domain_are_pooled_and_nobody_else() -> None:
    roster = build_roster(
        [
            hello("a", node=1),
            hello("b", node=2),
            hello("c", domain="law", node=3),
            hello("d", role="retain", domain="bio", node=4),
            hello("e", role="retain", domain="bio", node=5),
            hello("f", domain="art", node=2),
        ],
        (),
    )
    pooled = [one.client_id for one in roster.addressees if roster.is_pooled(one)]
    assert pooled == ["a", "b"]
    assert not roster.is_pooled(Addressee(2, "a"))


def test_a_role_that_nobody_has_is_said() -> None:
    roster = build_roster([hello("a")])
    assert roster.lacking({"a"}) == (
        "no retain client takes part: nothing constrains the forget update",
    )
    assert len(roster.lacking(set())) == 2


def test_a_partial_round_is_refused_by_default_with_every_name() -> None:
    outcome = RoundOutcome(("f2",), (FAILED,), (MISSING,))
    with pytest.raises(RunError) as caught:
        decide(outcome, allow_partial=False)
    text = str(caught.value)
    assert "2 of 3 clients did not deliver; no model is written" in text
    assert "forget client 'f1' (bio): ValueError: boom" in text
    assert "retain client 'r1' (general): too late" in text


def test_an_allowed_partial_round_says_whose_data_suffers() -> None:
    warnings = decide(RoundOutcome(("f2",), (FAILED,), (MISSING,)), allow_partial=True)
    assert warnings[0].endswith("the data of 'f1' in 'bio' is not unlearned")
    assert warnings[1].endswith("the data of 'r1' in 'general' is not protected")


def test_no_summary_at_all_is_never_enough() -> None:
    with pytest.raises(RunError, match="no client delivered"):
        decide(RoundOutcome((), (FAILED,)), allow_partial=True)


def test_a_complete_round_passes_its_notes_on() -> None:
    assert decide(RoundOutcome(("f1",), notes=("no retain",)), allow_partial=False) == (
        "no retain",
    )


def test_a_reason_that_already_names_the_client_is_not_named_twice() -> None:
    text = str(replace(FAILED, reason="forget client 'f1' (bio): boom"))
    assert text == "forget client 'f1' (bio): boom"


def test_the_minority_layout_is_odd() -> None:
    assert odd_layouts({"a": "x", "b": "x"}) == ()
    assert odd_layouts({"c": "x", "b": "y", "a": "x"}) == ("b",)
    with pytest.raises(RunError, match="no majority: a: x, b: y"):
        odd_layouts({"b": "y", "a": "x"})
