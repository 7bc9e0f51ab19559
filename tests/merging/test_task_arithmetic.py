import torch

from fedunlearn.merging import TaskArithmetic
from tests.merging.clients import client, drawn, inputs


def test_steps_back_along_the_mean_of_what_forget_clients_learnt() -> None:
    clients = [
        client("a", [3.0, -1.0]),
        client("b", [5.0, 0.0]),
        client("r", [9.0, 9.0], role="retain"),
    ]
    assert TaskArithmetic()(inputs(*clients)).tolist() == [[-4.0, 0.5]]
    assert TaskArithmetic(scaling=0.5)(inputs(*clients)).tolist() == [[-2.0, 0.25]]


def test_undoes_what_a_single_client_learnt() -> None:
    clients = drawn("a")
    assert torch.equal(TaskArithmetic()(inputs(*clients)), -clients[0].task_vector)


def test_nothing_to_undo() -> None:
    assert not TaskArithmetic()(inputs(*drawn("rr"))).any()
