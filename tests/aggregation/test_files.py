import json
import math
from pathlib import Path

import pytest
import torch

from fedunlearn.aggregation import (
    MergeSettings,
    PerClientEpsilon,
    RelativeEpsilon,
    merge_summaries,
    read_merge,
    write_merge,
)
from fedunlearn.aggregation.epsilon import Epsilon
from fedunlearn.errors import InputError
from fedunlearn.storage import write_json, write_tensors
from tests.pico import DOWN_0, pico_round

EPSILONS: list[Epsilon] = [
    math.inf,
    1e-3,
    RelativeEpsilon(relative=0.3),
    PerClientEpsilon(per_client={"keep-0": 1e-3, "keep-1": math.inf}),
]


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_round_trip(tmp_path: Path, epsilon: Epsilon) -> None:
    result = merge_summaries(pico_round(), MergeSettings(method="ties", epsilon=epsilon))
    write_merge(result, tmp_path / "ties")
    again = read_merge(tmp_path / "ties")
    assert again.report == result.report
    assert all(torch.equal(again.delta[name], result.delta[name]) for name in result.delta)


@pytest.mark.parametrize("method", ["fulm", "firm_matched"])
def test_facts_come_back(tmp_path: Path, method: str) -> None:
    result = merge_summaries(pico_round(), MergeSettings(method=method))
    write_merge(result, tmp_path)
    assert result.report.facts
    assert read_merge(tmp_path).report == result.report


def test_files_are_the_documented_ones(tmp_path: Path) -> None:
    write_merge(merge_summaries(pico_round(), MergeSettings()), tmp_path / "firm")
    assert sorted(path.name for path in (tmp_path / "firm").iterdir()) == [
        "delta.safetensors",
        "merge.json",
    ]
    text = (tmp_path / "firm" / "merge.json").read_text()
    content = json.loads(text, parse_constant=pytest.fail)
    assert content["epsilon"] == "inf"
    assert {"method", "gamma", "alpha", "epsilon", "tensors"} <= set(content)
    assert {"norm", "multipliers", "damage_before", "damage_after", "status", "residuals"} <= set(
        content["tensors"][DOWN_0]
    )


def test_broken_merges_name_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "firm"
    with pytest.raises(InputError, match=r"merge\.json cannot be read"):
        read_merge(folder)
    result = merge_summaries(pico_round(), MergeSettings())
    write_merge(result, folder)
    good = json.loads((folder / "merge.json").read_text())
    for change, text in [
        ({"format_version": 9}, r"merge\.json has format version 9"),
        ({"gamma": "much"}, r"merge\.json: gamma"),
        ({"tensors": {}}, "differ at"),
    ]:
        write_json(folder / "merge.json", {**good, **change})
        with pytest.raises(InputError, match=text):
            read_merge(folder)
    write_json(folder / "merge.json", good)
    write_tensors(
        folder / "delta.safetensors", {**result.delta, DOWN_0: result.delta[DOWN_0] * math.nan}
    )
    with pytest.raises(InputError, match=f"{DOWN_0}' must be float32 and finite"):
        read_merge(folder)
    flat = {**result.delta, DOWN_0: result.delta[DOWN_0].flatten()}
    write_tensors(folder / "delta.safetensors", flat)
    with pytest.raises(InputError, match=f"{DOWN_0}' must be a matrix"):
        read_merge(folder)
