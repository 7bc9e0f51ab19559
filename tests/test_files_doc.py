"""docs/FILES.md says what the code writes."""

import re
from dataclasses import fields
from pathlib import Path

import torch

from fedunlearn.aggregation import (
    MergeReport,
    MergeSettings,
    TensorReport,
    merge_summaries,
    write_merge,
)
from fedunlearn.arms import ArmOutcome
from fedunlearn.export import ExportReport
from fedunlearn.summary import SummaryMeta
from fedunlearn.training.fisher_pass import FisherSettings
from fedunlearn.training.footprint import Footprint
from tests.pico import logits, pico_llama, pico_round

TEXT = (Path(__file__).parents[1] / "docs" / "FILES.md").read_text(encoding="utf-8")


def documented(after: str) -> set[str]:
    """Keys in the first column of the first table after a text."""
    table = re.search(r"(?:^\|.*\n)+", TEXT[TEXT.index(after) :], re.MULTILINE)
    assert table is not None
    rows = table[0].splitlines()[2:]
    return {key for row in rows for key in re.findall(r"`([^`]+)`", row.split("|")[1])}


def names(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def test_every_key_is_documented() -> None:
    assert documented("### `summary.json`") == names(SummaryMeta)
    assert documented("### `merge.json`") == names(MergeReport)
    assert documented("| key in `tensors.<name>`") == names(TensorReport)
    assert documented("Beside the files lies `export.json`") == names(ExportReport)
    assert documented("of tied parameters the first. `unlearned.json`") == names(ArmOutcome)


def test_every_setting_of_the_fisher_is_documented() -> None:
    (row,) = (line for line in TEXT.splitlines() if line.startswith("| `fisher` |"))
    told = set(re.findall(r"`(\w+)`", row.split("|")[2]))
    assert told == names(FisherSettings) | {
        "dtype",
        "reference",
        "reference_sha256",
        "kept",
    } | names(Footprint)


def test_the_example_gives_the_live_model(tmp_path: Path) -> None:
    result = merge_summaries(pico_round(), MergeSettings())
    write_merge(result, tmp_path / "merged" / "firm")
    example = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert example is not None
    model, live = pico_llama(), pico_llama()
    exec(example[1], {"run": tmp_path, "model": model})  # noqa: S102
    weights = dict(live.named_parameters())
    with torch.no_grad():
        for name, update in result.delta.items():
            weights[name] += update
    assert torch.equal(logits(model), logits(live))
