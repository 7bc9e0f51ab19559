"""What travels: nothing that anybody sends may do more than be refused."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from fedunlearn.copies.update import CopyTicket, CopyUpdate, UpdateMeta, decode_meta, encode_meta
from fedunlearn.copies.update_files import UpdateSpool
from fedunlearn.copies.wire import (
    decode_tensors,
    encode_tensors,
    update_from_wire,
    update_to_wire,
)
from fedunlearn.errors import SummaryError

TICKET = CopyTicket(run="arm", server_round=1, copy=2, digest="0" * 64)
SHAPES = {"a.weight": (2, 3), "b.bias": (4,)}


def meta(client_id: str = "f-1", **changes: Any) -> UpdateMeta:
    return UpdateMeta(**{"ticket": TICKET, "client_id": client_id, "num_examples": 3, **changes})


def update(client_id: str = "f-1", **tensors: torch.Tensor) -> CopyUpdate:
    return CopyUpdate(
        meta(client_id), tensors or {name: torch.ones(shape) for name, shape in SHAPES.items()}
    )


def test_there_and_back_every_bit_and_dtype_is_the_same() -> None:
    tensors = {
        "a": torch.tensor([1e-10, -0.0, 1e5]).to(torch.bfloat16),
        "b": torch.tensor([[1.5, float("inf")]]),
        "c": torch.zeros(()),
    }
    arrays, dtypes = encode_tensors(tensors)
    back = decode_tensors(arrays, dtypes)
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)
    sent = update()
    got = update_from_wire(*update_to_wire(sent))
    assert got.meta == sent.meta
    assert all(torch.equal(got.tensors[name], sent.tensors[name]) for name in SHAPES)


@given(
    name=st.text(max_size=8),
    array=arrays_of.arrays(
        st.sampled_from([np.float32, np.uint16, np.int8, np.float64, np.bool_]),
        arrays_of.array_shapes(max_dims=3, max_side=3),
    ),
    dtypes=st.one_of(
        st.text(max_size=20),
        st.dictionaries(
            st.text(max_size=8),
            st.sampled_from(["float32", "bfloat16", "float64", "object", ""]),
        ).map(json.dumps),
    ),
)
def test_arrays_and_dtypes_of_any_kind_are_read_or_refused(
    name: str, array: np.ndarray[Any, Any], dtypes: str
) -> None:
    try:
        decoded = decode_tensors({name: array}, dtypes)
    except SummaryError:
        return
    assert decoded.keys() == {name}


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(key=st.sampled_from(sorted(json.loads(encode_meta(meta())))), value=JSON)
def test_a_description_with_anything_in_it_is_read_or_refused(key: str, value: object) -> None:
    tree = {**json.loads(encode_meta(meta())), key: value}
    with suppress(SummaryError):
        decode_meta(json.dumps(tree))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"format_version": 2}, "update format 2 is not the 1"),
        ({"client_id": "../etc"}, "which is no client id"),
        ({"num_examples": 0}, "which is no client id"),
        ({"extra": 1}, "extra"),
        ({"ticket": 3}, "ticket"),
    ],
)
def test_faults_of_a_description_are_named(changed: dict[str, Any], says: str) -> None:
    tree = {**json.loads(encode_meta(meta())), **changed}
    with pytest.raises(SummaryError, match=says):
        decode_meta(json.dumps(tree))


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({}, "no tensor|missing"),
        ({"a.weight": torch.ones(2, 3)}, "'b.bias' is missing"),
        ({"a.weight": torch.ones(2, 3), "b.bias": torch.ones(5)}, r"shape \(5,\), published"),
        ({"a.weight": torch.ones(2, 3), "b.bia": torch.ones(4)}, "did you mean 'b.bias'"),
        (
            {"a.weight": torch.full((2, 3), torch.nan), "b.bias": torch.ones(4)},
            "'a.weight' has an entry that is not finite",
        ),
        ({"a.weight": torch.zeros(2, 3), "b.bias": torch.zeros(4)}, "exactly zero"),
    ],
)
def test_faults_of_an_update_name_client_copy_and_tensor(
    tensors: dict[str, torch.Tensor], says: str
) -> None:
    with pytest.raises(SummaryError, match=says) as caught:
        CopyUpdate(meta(), tensors).check(SHAPES)
    assert "client 'f-1' for copy 2 of round 1 of 'arm'" in str(caught.value)


def test_factors_are_checked_by_their_module(tmp_path: Path) -> None:
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 2}
    stem = "base_model.model.a.lora_{}.weight"
    good = {stem.format("A"): torch.ones(1, 3), stem.format("B"): torch.ones(2, 1)}
    CopyUpdate(meta(adapter_config=config), good).check(SHAPES)
    for tensors, said in (
        ({**good, stem.format("B"): torch.zeros(2, 1)}, "exactly zero"),
        ({key.replace(".a.", ".x."): one for key, one in good.items()}, "was not published"),
        ({stem.format("A"): torch.ones(1, 3)}, "lora_B.weight' is missing"),
        ({**good, stem.format("A"): torch.ones(2, 3)}, "rank 1"),
        ({**good, stem.format("A"): torch.ones(1, 4)}, "published was"),
    ):
        with pytest.raises(SummaryError, match=said):
            CopyUpdate(meta(adapter_config=config), tensors).check(SHAPES)
    with pytest.raises(SummaryError, match="peft_type"):
        CopyUpdate(meta(adapter_config={}), good).check(SHAPES)


def test_the_spool_reads_by_id_whatever_the_order_of_arrival(tmp_path: Path) -> None:
    (tmp_path / "s" / "left").mkdir(parents=True)
    spool = UpdateSpool(tmp_path / "s")
    for client in ("c", "a", "b"):
        spool.keep(update(client))
    spool.keep(update("b", x=torch.full((2,), 7.0)))
    found = list(spool.updates(["b", "c", "a"]))
    assert [one.meta.client_id for one in found] == ["a", "b", "c"]
    assert torch.equal(found[1].tensors["x"], torch.full((2,), 7.0))
    spool.clear()
    assert not (tmp_path / "s").exists()
