import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch import Tensor

from fedunlearn.errors import SummaryError
from fedunlearn.summary import ClientSummary, adapter_keys, layout_digest
from tests.pico import DOWN_0, DOWN_1, changed, pico_llama, pico_summary, trained_adapter

KEY_A, KEY_B = adapter_keys(DOWN_0)
LORAS: list[dict[str, Any]] = [
    {},
    {"use_rslora": True},
    {"target_modules": "all-linear"},
    {"rank_pattern": {"layers.1.mlp.down_proj": 8}, "alpha_pattern": {"down_proj": 5}},
    {"rank_pattern": {"1.mlp.down_proj": 2}, "use_rslora": True, "lora_alpha": 3.5},
]


@pytest.mark.parametrize("lora", LORAS, ids=str)
def test_task_vectors_are_what_peft_merges(tmp_path: Path, lora: dict[str, Any]) -> None:
    trained_adapter(tmp_path, seed=1, **lora)
    summary = pico_summary(seed=1, **lora)
    summary.validate()
    base = pico_llama()
    before = {name: weight.detach().clone() for name, weight in base.named_parameters()}
    merged = PeftModel.from_pretrained(base, tmp_path).merge_and_unload()
    after = dict(merged.named_parameters())
    moved = [name for name, weight in before.items() if not torch.equal(weight, after[name])]
    assert sorted(moved) == summary.weights()
    for name in moved:
        expected = after[name].detach().double() - before[name].double()
        torch.testing.assert_close(
            summary.task_vector(name).double(), expected, atol=1e-6, rtol=1e-5
        )


def test_scaling_of_the_traps() -> None:
    plain, rooted = pico_summary(), pico_summary(use_rslora=True)
    product = plain.adapter[KEY_B].double() @ plain.adapter[KEY_A].double()
    torch.testing.assert_close(plain.task_vector(DOWN_0).double(), 2 * product)
    torch.testing.assert_close(rooted.task_vector(DOWN_0).double(), 4 * product)


@pytest.mark.parametrize("lora", LORAS, ids=str)
def test_factors_multiply_to_the_task_vector(lora: dict[str, Any]) -> None:
    summary = pico_summary(**lora)
    for name in summary.weights():
        left, right = summary.factors(name)
        assert left.dtype == right.dtype == torch.float32
        assert left.shape[1] == right.shape[0] == summary.lora.rank_of(name.removesuffix(".weight"))
        torch.testing.assert_close(left @ right, summary.task_vector(name))


def test_transposed_base_weights() -> None:
    summary = pico_summary()
    summary.adapter_config["fan_in_fan_out"] = True  # type: ignore[index]
    summary = with_fisher(summary, {name: f.T.contiguous() for name, f in summary.fisher.items()})
    summary.validate()
    assert torch.equal(summary.task_vector(DOWN_0), pico_summary().task_vector(DOWN_0).T)
    left, right = summary.factors(DOWN_0)
    torch.testing.assert_close(left @ right, summary.task_vector(DOWN_0))


# PEFT warns of the name itself; what it saves under it must still be read right.
@pytest.mark.filterwarnings("ignore:Adapter name 'lora' should not:UserWarning")
def test_an_adapter_named_lora_is_read_right(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    trained_adapter(tmp_path, adapter_name="lora")
    stored = load_file(tmp_path / "lora" / "adapter_model.safetensors")
    summary = pico_summary()
    assert stored.keys() == summary.adapter.keys()
    changed(summary).validate()


def test_unknown_weight_is_named() -> None:
    with pytest.raises(SummaryError, match=r"client 'bio-0'.*'model\.x\.weight'"):
        pico_summary().task_vector("model.x.weight")


def with_fisher(summary: ClientSummary, fisher: dict[str, Tensor]) -> ClientSummary:
    digest = layout_digest(fisher)
    return ClientSummary(
        meta=changed(summary, layout_digest=digest).meta,
        adapter_config=summary.adapter_config,
        adapter=summary.adapter,
        fisher=fisher,
    )


def spoil(part: str, key: str, value: Any) -> Callable[[ClientSummary], None]:
    def act(summary: ClientSummary) -> None:
        tensors = getattr(summary, part)
        if callable(value):
            tensors[key] = value(tensors[key])
        elif value is None:
            del tensors[key]
        else:
            tensors[value] = tensors.pop(key)

    return act


def poke(number: float) -> Callable[[Tensor], Tensor]:
    def act(tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        tensor[1, 2] = number
        return tensor

    return act


RENAMED = "model.layers.0.mlp.dwn_proj.weight"
FAULTS: dict[str, tuple[Callable[[ClientSummary], None], str]] = {
    "missing A": (spoil("adapter", KEY_A, None), f"adapter tensor '{KEY_A}' is missing"),
    "missing B": (spoil("adapter", KEY_B, None), f"adapter tensor '{KEY_B}' is missing"),
    "missing Fisher": (spoil("fisher", DOWN_0, None), f"no Fisher for '{DOWN_0}'"),
    "renamed Fisher": (spoil("fisher", DOWN_0, RENAMED), f"mean '{RENAMED}'"),
    "renamed A": (spoil("adapter", KEY_A, adapter_keys(RENAMED)[0]), f"mean '{DOWN_0}'"),
    "adapter's name": (
        spoil("adapter", KEY_A, KEY_A.replace(".weight", ".lora.weight")),
        "lora_A.lora.weight",
    ),
    "NaN in A": (spoil("adapter", KEY_A, poke(float("nan"))), f"'{KEY_A}' contains NaN"),
    "Inf in B": (spoil("adapter", KEY_B, poke(float("-inf"))), f"'{KEY_B}' contains an inf"),
    "NaN in Fisher": (spoil("fisher", DOWN_1, poke(float("nan"))), f"'{DOWN_1}' contains NaN"),
    "Inf in Fisher": (spoil("fisher", DOWN_1, poke(float("inf"))), f"'{DOWN_1}' contains an inf"),
    "negative Fisher": (spoil("fisher", DOWN_1, poke(-1e-30)), f"'{DOWN_1}' has negative"),
    "float32 Fisher": (spoil("fisher", DOWN_1, Tensor.float), f"'{DOWN_1}' has dtype"),
    "float64 A": (spoil("adapter", KEY_A, Tensor.double), f"'{KEY_A}' has dtype"),
    "integer A": (spoil("adapter", KEY_A, Tensor.int), f"'{KEY_A}' has dtype"),
    "flat A": (spoil("adapter", KEY_A, torch.flatten), f"'{KEY_A}' has shape (192,)"),
    "empty A": (spoil("adapter", KEY_A, lambda a: a[:0]), f"'{KEY_A}' has shape (0, 48)"),
    "other rank": (spoil("adapter", KEY_A, lambda a: a[:3]), f"'{DOWN_0}' has factors A (3, 48)"),
    "turned Fisher": (spoil("fisher", DOWN_0, lambda f: f.T), f"'{DOWN_0}' has shape (48, 32)"),
    "overflow": (spoil("adapter", KEY_A, poke(3e38)), f"update of '{DOWN_0}' overflows"),
    "lost weight": (
        lambda s: (
            [
                spoil(part, key, None)(s)  # type: ignore[func-returns-value]
                for part, key in (("adapter", KEY_A), ("adapter", KEY_B), ("fisher", DOWN_0))
            ]
            and None
        ),
        "layout digest",
    ),
    "all zero": (
        lambda s: s.adapter.update({k: t * 0 for k, t in s.adapter.items() if "_B." in k}),  # type: ignore[attr-defined]
        "exactly zero",
    ),
    "nothing": (lambda s: s.adapter.clear(), "no tensor"),  # type: ignore[attr-defined]
    "rank pattern": (
        lambda s: s.adapter_config.update(rank_pattern={"0.mlp.down_proj": 8}),  # type: ignore[attr-defined]
        "adapter_config gives it rank 8",
    ),
    "DoRA": (lambda s: s.adapter_config.update(use_dora=True), "use_dora"),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_name_client_role_domain_and_tensor(fault: str) -> None:
    act, text = FAULTS[fault]
    summary = changed(pico_summary())
    summary.validate()
    summary = changed(pico_summary())
    act(summary)
    with pytest.raises(SummaryError, match=re.escape(text)) as caught:
        summary.validate()
    assert str(caught.value).startswith("client 'bio-0' (forget, biology): ")


def test_meta_faults_name_the_client() -> None:
    with pytest.raises(SummaryError, match=r"client 'bio-0' \(teacher, biology\): role must be"):
        changed(pico_summary(), role="teacher").validate()


def test_one_weight_without_an_update_is_allowed() -> None:
    summary = changed(pico_summary())
    summary.adapter[KEY_B] = torch.zeros_like(summary.adapter[KEY_B])  # type: ignore[index]
    summary.validate()
    assert not summary.task_vector(DOWN_0).any()


def test_what_a_client_calls_itself_cannot_steer_a_terminal() -> None:
    hostile = changed(pico_summary(), domain="bio\x1b[2J\n")
    with pytest.raises(SummaryError, match="domain must") as caught:
        hostile.validate()
    assert "bio?[2J?" in hostile.label
    assert str(caught.value).isprintable()
