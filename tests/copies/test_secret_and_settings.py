"""Secrets do not leak or collide, settings refuse what cannot work."""

from typing import Any

import pytest

from fedunlearn.copies import CopySettings, PrivacySettings, RoundSecret
from fedunlearn.errors import InputError


def test_secrets_of_the_system_differ_and_say_so() -> None:
    one, other = RoundSecret.from_os(), RoundSecret.from_os()
    assert one.key != other.key
    assert len(one.key) == 32
    assert one.source == "os"
    assert RoundSecret.from_seed(1).source == "seed"
    assert RoundSecret.from_seed(1) == RoundSecret.from_seed(1)
    assert RoundSecret.from_seed(1).key != RoundSecret.from_seed(1 + 2**32).key


def test_a_secret_is_in_no_repr() -> None:
    secret = RoundSecret.from_seed(1)
    assert repr(secret) == "RoundSecret(source='seed')"


def test_derived_keys_differ_by_name_and_by_type() -> None:
    secret = RoundSecret.from_seed(1)
    names: list[tuple[str | int, ...]] = [("a", 1), ("a", "1"), ("a",), ("a", 1, 2), ("a", 12), ()]
    assert len({secret.derive(*name) for name in names}) == len(names)
    assert secret.derive("a", 1) == secret.derive("a", 1)


def test_a_secret_is_stored_and_read_back() -> None:
    secret = RoundSecret.from_os()
    assert RoundSecret.from_json(secret.to_json()) == secret


@pytest.mark.parametrize(
    "bad", [None, {}, {"source": "os", "key": "ab"}, {"source": "x"}, "ab" * 32]
)
def test_a_damaged_secret_is_refused(bad: object) -> None:
    with pytest.raises(InputError, match="stored secret of the copies is damaged"):
        RoundSecret.from_json(bad)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"m": 1}, "m must be >= 2"),
        ({"kappa": -0.1}, "kappa"),
        ({"kappa": float("nan")}, "kappa"),
        ({"m": 3, "alphas": (1.0, 2.0)}, "one entry a copy, got 2 for m=3"),
        ({"alphas": (1.0, 0.0)}, "alphas must be positive"),
        ({"perturb": ()}, "perturb names no parameter"),
        ({"max_unchanged": 1.5}, "max_unchanged"),
        ({"eta_srv": 0.0}, "eta_srv"),
        ({"self_check_bound": 0.0}, "self_check_bound"),
    ],
)
def test_settings_refuse(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        CopySettings(**given)


@pytest.mark.parametrize("m", [2, 3, 5])
def test_the_papers_alphas(m: int) -> None:
    scales = CopySettings(m=m).scales
    assert (scales[0], scales[-1], len(scales)) == (1.0, 2.0, m)


def test_the_gaussian_mechanism() -> None:
    """sqrt(2 ln 125000) = 4.84481, by a calculator."""
    assert PrivacySettings(epsilon=0.5, delta=1e-5, sensitivity=2.0).sigma == pytest.approx(
        4 * 4.84481, rel=1e-5
    )
    for bad in ({"epsilon": 2.0}, {"delta": 0.0}, {"sensitivity": -1.0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            PrivacySettings(**{"epsilon": 1.0, "delta": 1e-5, "sensitivity": 1.0, **bad})
    whole = PrivacySettings(epsilon=1.0, delta=1e-5, sensitivity=1.0)
    with pytest.raises(ValueError, match="noise on every parameter"):
        CopySettings(privacy=whole, perturb=("*.mlp.*",))
