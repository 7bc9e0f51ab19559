"""What docs/DATA.md shows can be used as it stands, and it leaves nothing out."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedunlearn.data.partition import PARTITIONERS
from fedunlearn.data.reading import build_source
from fedunlearn.data.sources import SOURCES, build_partitioner, muse
from fedunlearn.data.sources.tofu import SPLITS

TEXT = (Path(__file__).parent.parent / "docs" / "DATA.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.DOTALL)


def specs(tree: Any) -> list[Any]:
    """Every value of `data` and `choices` in a snippet, except a source's own columns."""
    if isinstance(tree, list):
        return [spec for one in tree for spec in specs(one)]
    if not isinstance(tree, dict):
        return []
    found = [tree[key] for key in ("data", "choices") if key in tree]
    return found + [spec for value in tree.values() for spec in specs(value)]


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_a_snippet_names_a_source_that_can_be_made(snippet: str) -> None:
    found = specs(yaml.safe_load(snippet))
    assert found
    for spec in found:
        source = build_source(spec)
        if source.partition is not None:
            assert build_partitioner(source.partition).expected


def test_every_source_has_a_snippet() -> None:
    shown = {
        spec["source"] if isinstance(spec, dict) else "jsonl"
        for snippet in SNIPPETS
        for spec in specs(yaml.safe_load(snippet))
    }
    assert shown == set(SOURCES)


def test_every_split_and_partitioner_is_named() -> None:
    words = [*SPLITS, *muse.SPLITS, *PARTITIONERS]
    words += [split for splits in muse.SPLITS.values() for split in splits]
    ranges = {f"forget_{fold}" for fold in (2, 3)}  # "`forget_1` to `forget_4`"
    assert [word for word in words if f"`{word}`" not in TEXT and word not in ranges] == []
