import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fedunlearn.errors import SummaryError
from fedunlearn.summary import ClientSummary, from_wire, layout_digest, to_wire, wire_bytes
from tests.pico import DOWN_0, DOWN_1, changed, pico_summary
from tests.summary.test_files import same

FISHER = f"fisher/{DOWN_0}"
Arrays = dict[str, Any]


def test_round_trip_in_any_order() -> None:
    arrays, meta = to_wire(pico_summary())
    same(from_wire(dict(reversed(arrays.items())), meta), pico_summary())


def test_bfloat16_arrives_bit_for_bit() -> None:
    summary = pico_summary()
    fisher = dict(summary.fisher)
    fisher[DOWN_0][0, :4] = torch.tensor([1e-10, 1e5, 0.0, 9.2e-41]).to(torch.bfloat16)
    arrays, meta = to_wire(summary)
    assert arrays[FISHER].dtype == np.uint16
    received = from_wire(arrays, meta).fisher[DOWN_0]
    assert received.dtype == torch.bfloat16
    assert torch.equal(received.view(torch.int16), fisher[DOWN_0].view(torch.int16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_adapter_dtypes_survive(dtype: torch.dtype) -> None:
    summary = changed(pico_summary())
    lower = {name: factor.to(dtype) for name, factor in summary.adapter.items()}
    summary = ClientSummary(
        meta=summary.meta,
        adapter_config=summary.adapter_config,
        adapter=lower,
        fisher=summary.fisher,
    )
    same(from_wire(*to_wire(summary)), summary)


def test_read_only_and_strided_arrays() -> None:
    arrays, meta = to_wire(pico_summary())
    for name, array in arrays.items():
        arrays[name] = np.asfortranarray(array)
        arrays[name].flags.writeable = False
    same(from_wire(arrays, meta), pico_summary())


def edit(change: Callable[[dict[str, Any]], Any]) -> Callable[[Arrays, str], tuple[Arrays, str]]:
    def act(arrays: Arrays, meta: str) -> tuple[Arrays, str]:
        document = json.loads(meta)
        change(document)
        return arrays, json.dumps(document)

    return act


def swap(name: str, value: Any) -> Callable[[Arrays, str], tuple[Arrays, str]]:
    def act(arrays: Arrays, meta: str) -> tuple[Arrays, str]:
        arrays[name] = value(arrays[name]) if callable(value) else value
        return arrays, meta

    return act


def drop(arrays: Arrays, meta: str) -> tuple[Arrays, str]:
    del arrays[FISHER]
    return arrays, meta


NAMED: dict[str, tuple[Callable[[Arrays, str], tuple[Arrays, str]], str]] = {
    "lost array": (drop, FISHER),
    "extra array": (swap("fisher/x.weight", lambda _: None), "fisher/x"),
    "float Fisher": (swap(FISHER, lambda a: a.astype(np.float32)), f"{FISHER}' came as float32"),
    "int16 Fisher": (swap(FISHER, lambda a: a.view(np.int16)), f"{FISHER}' came as int16"),
    "big-endian": (swap(FISHER, lambda a: a.astype(">u2")), f"{FISHER}' came as >u2"),
    "objects": (swap(FISHER, lambda a: a.astype(object)), f"{FISHER}' came as object"),
    "no array": (swap(FISHER, [1, 2]), f"{FISHER}' came as list"),
    "NaN bits": (swap(FISHER, lambda a: np.full_like(a, 0x7FC0)), f"{DOWN_0}' contains NaN"),
    "wrong shape": (swap(FISHER, lambda a: a[:-1]), f"{DOWN_0}' has shape"),
    "0-d": (swap(FISHER, lambda a: a.reshape(-1)[0:1].reshape(())), f"{DOWN_0}' has shape"),
    "unknown dtype": (edit(lambda d: d["dtypes"].update({FISHER: "int4"})), "'int4'"),
    "dtype no text": (edit(lambda d: d["dtypes"].update({FISHER: [1]})), "[1]"),
    "no dtypes": (edit(lambda d: d.pop("dtypes")), "'dtypes' is missing"),
    "no config": (edit(lambda d: d.pop("adapter_config")), "'adapter_config' is missing"),
    "config no object": (edit(lambda d: d.update(adapter_config=3)), "'adapter_config'"),
    "empty config": (edit(lambda d: d.update(adapter_config={})), "peft_type None"),
    "extra meta": (edit(lambda d: d["meta"].update(admin=True)), "unknown key 'admin'"),
    "lost meta": (edit(lambda d: d["meta"].pop("role")), "role is missing"),
    "role": (edit(lambda d: d["meta"].update(role="server")), "'server'"),
    "digest": (edit(lambda d: d["meta"].update(layout_digest="0" * 64)), "layout digest"),
}
NAMELESS: dict[str, tuple[Callable[[Arrays, str], tuple[Arrays, str]], str]] = {
    "no JSON": (lambda arrays, _: (arrays, "{"), "JSON is broken"),
    "deep JSON": (lambda arrays, _: (arrays, "[" * 100_000), "JSON is broken"),
    "a list": (lambda arrays, _: (arrays, "[]"), "no object"),
    "no text": (lambda arrays, _: (arrays, None), "JSON is broken"),  # type: ignore[return-value]
    "no meta": (edit(lambda d: d.pop("meta")), "'meta' is missing"),
    "id no text": (edit(lambda d: d["meta"].update(client_id=3)), "client_id"),
    "id a path": (edit(lambda d: d["meta"].update(client_id="../x")), "client_id"),
}


@pytest.mark.parametrize("fault", [*NAMED, *NAMELESS])
def test_hostile_input_is_a_named_error(fault: str) -> None:
    act, text = {**NAMED, **NAMELESS}[fault]
    arrays, meta = to_wire(changed(pico_summary()))
    if fault == "extra array":
        arrays["fisher/x.weight"] = arrays[FISHER]
    with pytest.raises(SummaryError) as caught:
        from_wire(*act(arrays, meta))
    assert text in str(caught.value)
    assert ("client 'bio-0'" in str(caught.value)) == (fault in NAMED)


def test_an_unknown_part_is_refused() -> None:
    arrays, meta = to_wire(pico_summary())
    document = json.loads(meta)
    arrays["gradients/x"] = arrays[FISHER]
    document["dtypes"]["gradients/x"] = "bfloat16"
    with pytest.raises(SummaryError, match="client 'bio-0': unknown array 'gradients/x'"):
        from_wire(arrays, json.dumps(document))


def test_a_renamed_weight_is_refused() -> None:
    summary = changed(pico_summary())
    fisher = dict(summary.fisher)
    fisher["model.layers.0.mlp.weighted_proj.weight"] = fisher.pop(DOWN_0)
    summary = ClientSummary(
        meta=changed(summary, layout_digest=layout_digest(fisher)).meta,
        adapter_config=summary.adapter_config,
        adapter=summary.adapter,
        fisher=fisher,
    )
    with pytest.raises(SummaryError, match=f"client 'bio-0' .*no Fisher for '{DOWN_0}'"):
        from_wire(*to_wire(summary))


def sparse() -> ClientSummary:
    """A summary of which one Fisher is nearly all zero and the other is not."""
    summary = pico_summary()
    summary.fisher[DOWN_0][1:] = 0.0  # type: ignore[index]
    return summary


def test_many_zeros_travel_as_a_bitmap_and_nothing_is_lost() -> None:
    arrays, meta = to_wire(sparse())
    assert f"bitmap/{DOWN_0}" in arrays
    assert FISHER not in arrays
    assert f"fisher/{DOWN_1}" in arrays
    same(from_wire(dict(reversed(arrays.items())), meta), sparse())
    for summary in (sparse(), pico_summary()):
        assert wire_bytes(summary) == sum(array.nbytes for array in to_wire(summary)[0].values())
    assert wire_bytes(sparse()) < wire_bytes(pico_summary())


def shape_of(document: dict[str, Any], shape: object) -> None:
    document["shapes"][DOWN_0] = shape


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (edit(lambda d: shape_of(d, "12x6")), "has shape '12x6'"),
        (edit(lambda d: shape_of(d, [12.0, 6])), "expected whole numbers"),
        (edit(lambda d: shape_of(d, [True, 6])), "expected whole numbers"),
        (edit(lambda d: shape_of(d, [10**9, 10**9])), "has a bitmap of uint8"),
        (edit(lambda d: shape_of(d, [-1, -72])), "has shape"),
        (edit(lambda d: d["shapes"].pop(DOWN_0)), "do not pair up"),
        (edit(lambda d: d.pop("shapes")), "'shapes' is missing"),
        (edit(lambda d: d["shapes"].update({"x": [1, 1]})), "do not pair up"),
        (lambda arrays, meta: ({**arrays, f"bitmap/{DOWN_0}": "x"}, meta), "came as str"),
        (
            lambda arrays, meta: ({**arrays, f"entries/{DOWN_0}": np.ones(1, np.uint16)}, meta),
            "has 1 entries, its bitmap says",
        ),
    ],
)
def test_a_bitmap_that_does_not_fit_is_refused(
    spoil: Callable[[Arrays, str], tuple[Arrays, str]], fault: str
) -> None:
    with pytest.raises(SummaryError, match=f"client 'bio-0'.*{fault}"):
        from_wire(*spoil(*to_wire(sparse())))


def test_a_fisher_that_comes_both_ways_is_refused() -> None:
    arrays, meta = to_wire(sparse())
    document = json.loads(meta)
    arrays[FISHER] = to_wire(pico_summary())[0][FISHER]
    document["dtypes"][FISHER] = "bfloat16"
    with pytest.raises(SummaryError, match="comes twice"):
        from_wire(arrays, json.dumps(document))
