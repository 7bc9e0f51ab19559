import threading
from collections.abc import Iterator

import pytest
import torch

from fedunlearn.tensors.threads import alone, in_threads


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_results_come_in_order(number: int, threads: None) -> None:
    torch.set_num_threads(number)
    assert list(in_threads(lambda n: n * n, range(50))) == [n * n for n in range(50)]


def test_every_thread_computes_alone_and_the_caller_as_before(threads: None) -> None:
    torch.set_num_threads(3)
    inside = list(in_threads(lambda _: (threading.get_ident(), torch.get_num_threads()), range(30)))
    assert {number for _, number in inside} == {1}
    assert threading.get_ident() not in {thread for thread, _ in inside}
    assert torch.get_num_threads() == 3
    fresh = []
    other = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert fresh == [3]


def test_a_thread_may_ask_for_threads(threads: None) -> None:
    torch.set_num_threads(2)
    nested = in_threads(lambda n: sum(in_threads(lambda k: n * k, range(4))), range(5))
    assert list(nested) == [6 * n for n in range(5)]


def test_a_fault_is_raised_in_its_place(threads: None) -> None:
    torch.set_num_threads(2)

    def fail(number: int) -> int:
        if number == 2:
            raise ValueError("the third")
        return number

    results = in_threads(fail, range(5))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="the third"):
        next(results)


@pytest.mark.parametrize("count", [1, 2])
def test_alone_there_is_one_thread_and_the_same_bits(threads: None, count: int) -> None:
    matrix = torch.randn(300, 300, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.set_num_threads(1)
    expected = torch.linalg.qr(matrix)[0]
    torch.set_num_threads(count)
    assert alone(torch.get_num_threads) == 1
    assert torch.equal(alone(lambda: torch.linalg.qr(matrix)[0]), expected)
    assert torch.get_num_threads() == count
    assert list(in_threads(lambda _: alone(torch.get_num_threads), range(3))) == [1, 1, 1]
