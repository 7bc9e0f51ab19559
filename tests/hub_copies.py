"""Small local copies of the public data sets, in exactly their layouts of files and columns."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedunlearn.data.sources import muse as muse_source
from fedunlearn.data.sources.tofu import SPLITS

Rows = Sequence[dict[str, Any]]
SUBJECTS = ("anatomy", "virology")


def json_lines(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def parquet(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def arrow(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(list(rows))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    return path


def csv_file(path: Path, lines: Sequence[Sequence[str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(lines)
    return path


def tofu(folder: Path, *, forget: int = 40, other: int = 45) -> Path:
    """One JSON-lines file a split, named ``.json``, as on the hub."""
    for split in SPLITS:
        count = forget if split.startswith("forget") else other
        json_lines(folder / f"{split}.json", [_tofu_row(split, place) for place in range(count)])
    return folder


def _tofu_row(split: str, place: int) -> dict[str, Any]:
    name = split.removesuffix("_perturbed")
    row: dict[str, Any] = {
        "question": f"Who wrote {name} {place}?",
        "answer": f"Author {place} of {name}.",
    }
    if split.endswith("_perturbed"):
        row["perturbed_answer"] = [f"Other {k} of {name} {place}" for k in range(3)]
        if name not in ("real_authors", "world_facts"):
            row |= {
                "paraphrased_answer": f"By {place}.",
                "paraphrased_question": f"By whom {place}?",
            }
    if name in ("real_authors", "world_facts"):
        row |= {f"option{k}": f"option {k} of {place}" for k in range(1, 5)}
    return row


def muse(folder: Path) -> Path:
    """Parquet files ``<subset>/<split>-00000-of-00001.parquet``."""
    for subset, splits in muse_source.SPLITS.items():
        for split in splits:
            name = f"{subset}/{split}-00000-of-00001.parquet"
            parquet(folder / name, [_muse_row(subset, split, place) for place in range(3)])
    return folder


def _muse_row(subset: str, split: str, place: int) -> dict[str, Any]:
    told = f"{subset} {split} {place}"
    if subset == "knowmem":
        return {"question": f"What of {told}?", "answer": f"This of {told}"}
    if subset == "verbmem":
        return {"prompt": f"Once {told}", "gt": f"and then {told}"}
    return {"text": f"Words of {told}. " * 20}


def wmdp(folder: Path, *, counts: Mapping[str, int] | None = None) -> Path:
    """Parquet files ``wmdp-<subject>/test-00000-of-00001.parquet``."""
    for subject in ("bio", "chem", "cyber"):
        rows = [
            {
                "answer": place % 4,
                "question": f"Which {subject} {place}?",
                "choices": [f"{subject} {place} {letter}" for letter in "abcd"],
            }
            for place in range((counts or {}).get(subject, 9))
        ]
        parquet(folder / f"wmdp-{subject}/test-00000-of-00001.parquet", rows)
    return folder


def mmlu_rows(
    split: str, *, count: int, subjects: Sequence[str] = SUBJECTS
) -> list[dict[str, Any]]:
    """Rows of the newest layout: a list of choices, a number, a subject."""
    return [
        {
            "question": f"{split} question {place}?",
            "subject": subjects[place % len(subjects)],
            "choices": [f"{split} {place} {letter}" for letter in "abcd"],
            "answer": place % 4,
        }
        for place in range(count)
    ]


def mmlu(folder: Path, *, count: int = 8, subjects: Sequence[str] = SUBJECTS) -> Path:
    """The newest layout: ``all/<split>-...``, one folder a subject, nested ``auxiliary_train``."""
    for split in ("test", "validation", "dev"):
        rows = mmlu_rows(split, count=count, subjects=subjects)
        parquet(folder / f"all/{split}-00000-of-00001.parquet", rows)
        for subject in subjects:
            held = [row for row in rows if row["subject"] == subject]
            parquet(folder / f"{subject}/{split}-00000-of-00001.parquet", held)
    nested = [{"train": {**row, "subject": ""}} for row in mmlu_rows("train", count=count)]
    parquet(folder / "auxiliary_train/train-00000-of-00001.parquet", nested)
    return folder
