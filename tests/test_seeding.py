import random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedunlearn.seeding import derive, generator

names = st.lists(st.text(max_size=5) | st.integers(-3, 3), max_size=4)


def test_the_value_is_fixed_for_ever() -> None:
    assert (
        derive(0, "client", 3) == 85715297759994332
    )  # printf '0\x1fstr:client\x1fint:3' | sha256sum


@given(st.integers(0, 2**63), names)
@settings(deadline=None)
def test_in_range_and_repeatable(seed: int, path: list[str | int]) -> None:
    assert 0 <= derive(seed, *path) < 2**63
    assert derive(seed, *path) == derive(seed, *path)


def test_different_paths_differ() -> None:
    paths: list[tuple[str | int, ...]] = [(), ("a",), ("b",), ("a", "b"), ("ab",), (1,), ("1",)]
    seeds = {derive(seed, *path) for path in paths for seed in (0, 1)}
    assert len(seeds) == 2 * len(paths)


def test_generators_repeat_and_ignore_global_state() -> None:
    first = torch.randn(4, generator=generator(7, "noise"))
    torch.manual_seed(1)
    random.seed(1)
    assert torch.equal(first, torch.randn(4, generator=generator(7, "noise")))
    assert not torch.equal(first, torch.randn(4, generator=generator(8, "noise")))


def test_drawing_leaves_global_state_alone() -> None:
    before = torch.get_rng_state()
    torch.randn(4, generator=generator(7, "noise"))
    assert torch.equal(before, torch.get_rng_state())
