"""The server's rounds with clients that are one line of arithmetic: no Flower, no training."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedunlearn.copies import CopyPlan, CopySettings, RoundSecret, plan_copies
from fedunlearn.copies.rounds import CopyRounds, PublishedCopy, RoundsPlan
from fedunlearn.copies.state import STATE_FILE, StateFolder
from fedunlearn.copies.update import CopyUpdate, UpdateMeta
from fedunlearn.errors import InputError, RunError
from fedunlearn.models.loading import LoadedModel
from tests.world import pocket_model

Client = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
EXAMPLES = {"a": 30, "b": 10}
PLAN = RoundsPlan(name="arm", scheme="mpu", rounds=2, copies=CopySettings(kappa=0.1))
LORA = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}
DOWN = "model.layers.1.mlp.down_proj"


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return pocket_model()


def weights_of(model: LoadedModel) -> dict[str, Tensor]:
    return {name: one.detach().clone() for name, one in model.model.named_parameters()}


def layout_of(model: LoadedModel) -> CopyPlan:
    return plan_copies(
        model.model.config, {name: one.shape for name, one in weights_of(model).items()}
    )


def rounds_of(
    model: LoadedModel, plan: RoundsPlan = PLAN, *, state: Path | None = None, seed: int = 3
) -> CopyRounds:
    weights = weights_of(model)
    layout = layout_of(model)
    return CopyRounds(
        plan,
        layout,
        {name: weights[name] for name in layout.shapes},
        weights_of(pocket_model(seed=1)),
        RoundSecret.from_seed(seed),
        state=StateFolder(state) if state else None,
    )


def shrinking(rate: float) -> Client:
    """A displacement that is linear in the weights and commutes with every symmetry."""
    return lambda published: {name: -rate * one for name, one in published.items()}


CLIENTS = {"a": shrinking(0.1), "b": shrinking(0.2)}


def updates(
    copy: PublishedCopy, clients: Mapping[str, Client], *, adapter: bool = False
) -> Iterator[CopyUpdate]:
    for name, client in sorted(clients.items()):
        meta = UpdateMeta(
            ticket=copy.ticket,
            client_id=name,
            num_examples=EXAMPLES[name],
            adapter_config=LORA if adapter else None,
        )
        yield CopyUpdate(meta, client(copy.tensors))


def finish(rounds: CopyRounds, clients: Mapping[str, Client] = CLIENTS) -> dict[str, Tensor]:
    """Run what is left."""
    adapter = rounds.sends_adapters
    while (copy := rounds.next_copy()) is not None:
        rounds.take(copy.ticket, updates(copy, clients, adapter=adapter))
    return rounds.weights


def start(rounds: CopyRounds, examples: Mapping[str, float] = EXAMPLES) -> CopyRounds:
    rounds.begin(examples)
    return rounds


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    return max((one[name] - other[name]).abs().max().item() for name in one)


def shrunk(model: LoadedModel, share: float) -> dict[str, Tensor]:
    return {name: share * one for name, one in weights_of(model).items()}


def test_of_linear_clients_every_trace_of_the_noise_is_gone_after_every_round(
    model: LoadedModel,
) -> None:
    """By examples, the clients' mean is -0.125 theta: two rounds leave 0.875 squared."""
    result = finish(start(rounds_of(model)))
    assert distance(result, shrunk(model, 0.875**2)) < 1e-6
    equal = finish(start(rounds_of(model, replace(PLAN, equal=True))))
    assert distance(equal, shrunk(model, 0.85**2)) < 1e-6


def test_the_server_s_step_size_scales_the_average(model: LoadedModel) -> None:
    half = replace(PLAN, rounds=1, copies=CopySettings(kappa=0.1, eta_srv=0.5))
    assert distance(finish(start(rounds_of(model, half))), shrunk(model, 1 - 0.0625)) < 1e-6


def test_baselines_clean_is_exact_and_noised_keeps_its_noise(model: LoadedModel) -> None:
    clean = finish(start(rounds_of(model, replace(PLAN, scheme="clean"))))
    assert distance(clean, shrunk(model, 0.875**2)) < 1e-6
    noised = finish(start(rounds_of(model, replace(PLAN, scheme="noised"))))
    assert distance(noised, clean) > 1e-3


def test_a_published_copy_is_not_the_model_and_has_a_digest_of_its_own(
    model: LoadedModel,
) -> None:
    rounds, seen = start(rounds_of(model)), []
    while (copy := rounds.next_copy()) is not None:
        seen.append(copy.ticket)
        assert distance(copy.tensors, rounds.weights) > 1e-3
        rounds.take(copy.ticket, updates(copy, CLIENTS))
    assert [(t.server_round, t.copy) for t in seen] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert len({t.digest for t in seen}) == 4
    assert [fact["digest"] for fact in rounds.facts] == [t.digest for t in seen]
    assert [fact["alpha"] for fact in rounds.facts] == [1, 2, 1, 2]


def test_adapters_are_undone_as_factors(model: LoadedModel) -> None:
    """Without noise, projecting onto a copy's own directions commutes with its symmetry."""
    plan = replace(PLAN, rounds=1, adapters=True, copies=CopySettings(kappa=0, symmetry="full"))
    rows = {"a": scaled_rows, "b": scaled_rows}
    result = finish(start(rounds_of(model, plan)), rows)
    clean = finish(start(rounds_of(model, replace(plan, scheme="clean"))), rows)
    assert distance(result, clean) < 1e-6
    moved = [name for name, one in weights_of(model).items() if not torch.equal(one, result[name])]
    assert moved == [f"{DOWN}.weight"]


def scaled_rows(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """-0.1 times the first two rows of down_proj, whose columns are the permuted channels."""
    weight, stem = published[f"{DOWN}.weight"], f"base_model.model.{DOWN}"
    left = torch.zeros(weight.shape[0], 2)
    left[0, 0] = left[1, 1] = 1.0
    return {f"{stem}.lora_B.weight": left, f"{stem}.lora_A.weight": -0.05 * weight[:2]}


@pytest.mark.parametrize("adapters", [False, True])
@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_killed_between_copies_it_goes_on_with_the_same_bits(
    done: int, adapters: bool, model: LoadedModel, tmp_path: Path
) -> None:
    plan = replace(PLAN, adapters=adapters)
    clients = {"a": scaled_rows, "b": scaled_rows} if adapters else CLIENTS
    whole = finish(start(rounds_of(model, plan)), clients)
    first = start(rounds_of(model, plan, state=tmp_path / "s"))
    for _ in range(done):
        copy = first.next_copy()
        assert copy is not None
        first.take(copy.ticket, updates(copy, clients, adapter=adapters))
    second = start(rounds_of(model, plan, state=tmp_path / "s", seed=99))  # the stored secret wins
    assert len(second.facts) == done
    result = finish(second, clients)
    assert all(torch.equal(result[name], whole[name]) for name in whole)


def test_the_state_is_its_owner_s_alone_and_of_one_run_only(
    model: LoadedModel, tmp_path: Path
) -> None:
    rounds = start(rounds_of(model, state=tmp_path / "s"))
    assert (tmp_path / "s").stat().st_mode & 0o077 == 0
    copy = rounds.next_copy()
    assert copy is not None
    rounds.take(copy.ticket, updates(copy, CLIENTS))
    files = sorted(path.name for path in (tmp_path / "s").iterdir())
    assert files == ["state.json", "sum-1-1.safetensors"]
    other = rounds_of(model, replace(PLAN, rounds=3), state=tmp_path / "s")
    with pytest.raises(InputError, match="of a run with other settings"):
        start(other)
    with pytest.raises(RunError, match=r"round 1 of 'arm' was begun with b, who did not answer"):
        start(rounds_of(model, state=tmp_path / "s"), {"a": 30})
    StateFolder(tmp_path / "s").clear()
    assert not (tmp_path / "s").exists()


def test_a_damaged_state_is_named(model: LoadedModel, tmp_path: Path) -> None:
    start(rounds_of(model, state=tmp_path / "s"))
    (tmp_path / "s" / STATE_FILE).write_text("{")
    with pytest.raises(InputError, match=r"state\.json is not valid JSON"):
        start(rounds_of(model, state=tmp_path / "s"))


def test_without_a_client_the_round_begins_again_and_is_that_of_the_others(
    model: LoadedModel, tmp_path: Path
) -> None:
    rounds = start(rounds_of(model, state=tmp_path / "s"))
    copy = rounds.next_copy()
    assert copy is not None
    rounds.take(copy.ticket, updates(copy, CLIENTS))
    rounds.begin_again(without=["b"])
    assert rounds.facts == ()
    alone = {"a": CLIENTS["a"]}
    result = finish(rounds, alone)
    expected = finish(start(rounds_of(model), {"a": 30}), alone)
    assert all(torch.equal(result[name], expected[name]) for name in expected)


def test_a_missing_update_is_never_averaged_over(model: LoadedModel) -> None:
    rounds = start(rounds_of(model, replace(PLAN, rounds=1)))
    with pytest.raises(RunError, match="the average lacks"):
        finish(rounds, {"a": CLIENTS["a"]})
    with pytest.raises(RunError, match="no client takes part"):
        rounds_of(model).begin({})
