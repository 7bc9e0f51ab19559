import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedunlearn.data.reading import (
    build_source,
    is_remote,
    read_choice_set,
    read_entries,
    read_question_set,
    read_training_records,
)
from fedunlearn.data.records import MultipleChoice, Passage, Question, write_jsonl
from fedunlearn.data.sources import SOURCES, muse
from fedunlearn.data.sources.tofu import SPLITS
from fedunlearn.errors import DataError, InputError
from tests import hub_copies as copies

CHOICE = MultipleChoice("test question 1?", ("test 1 a", "test 1 b", "test 1 c", "test 1 d"), 1)


# ---- files of one's own ----------------------------------------------------------------------


def test_one_table_in_three_formats(tmp_path: Path) -> None:
    rows = [{"prompt": f"q{n}?", "reply": f"a{n}", "site": "north"} for n in range(3)]
    files = {
        "jsonl": copies.json_lines(tmp_path / "d.jsonl", rows),
        "csv": copies.csv_file(tmp_path / "d.csv", [[*rows[0]], *([*r.values()] for r in rows)]),
        "parquet": copies.parquet(tmp_path / "d.parquet", rows),
    }
    for source, path in files.items():
        columns = {"question": "prompt", "answer": "reply"}
        spec = {"source": source, "path": str(path), "columns": columns}
        assert read_training_records(spec) == [Question(f"q{n}?", f"a{n}") for n in range(3)]


def test_a_path_alone_is_read_by_its_ending(tmp_path: Path) -> None:
    rows = [{"question": "q?", "answer": "a"}]
    lines, table = tmp_path / "d.jsonl", tmp_path / "d.parquet"
    copies.json_lines(lines, rows)
    copies.parquet(table, rows)
    sheet = copies.csv_file(tmp_path / "d.CSV", [["question", "answer"], ["q?", "a"]])
    for path in (lines, table, sheet):
        assert read_training_records(str(path)) == [Question("q?", "a")]
        assert read_question_set(str(path)) == [Question("q?", "a")]


def test_a_column_that_is_not_there_names_file_line_and_column(tmp_path: Path) -> None:
    path = copies.csv_file(tmp_path / "d.csv", [["q", "a"], ["x?", "y"]])
    spec = {"source": "csv", "path": str(path), "columns": {"question": "q", "answer": "reply"}}
    with pytest.raises(DataError, match=r"d\.csv, line 2: no column 'reply'; its columns are 'q'"):
        read_training_records(spec)


@pytest.mark.parametrize("source", ["jsonl", "csv", "parquet"])
def test_an_empty_file_is_named(tmp_path: Path, source: str) -> None:
    path = tmp_path / "empty"
    path.write_text("question,answer\n" if source == "csv" else "")
    if source == "parquet":
        pq.write_table(pa.table({"question": pa.array([], pa.string())}), path)
    with pytest.raises(DataError, match=r"empty holds no records; it needs at least one"):
        read_training_records({"source": source, "path": str(path)})


# ---- sampling, cutting, dealing out ------------------------------------------------------------


def numbered(path: Path, count: int) -> dict[str, Any]:
    rows = [{"text": f"word{n}", "site": "ab"[n % 2]} for n in range(count)]
    return {"source": "jsonl", "path": str(copies.json_lines(path, rows))}


def test_a_sample_is_drawn_by_its_seed_and_keeps_the_order(tmp_path: Path) -> None:
    spec = numbered(tmp_path / "d.jsonl", 50)
    everything = read_training_records(spec)
    first = read_training_records({**spec, "sample": 10})
    assert first == [one for one in everything if one in first]
    assert len(first) == 10
    assert read_training_records({**spec, "sample": 10}) == first
    assert read_training_records({**spec, "sample": 10, "sample_seed": 1}) != first
    with pytest.raises(DataError, match=r"has 50 records, fewer than the sample of 51"):
        read_training_records({**spec, "sample": 51})


def test_the_sample_is_dealt_out_and_nothing_else(tmp_path: Path) -> None:
    spec = {**numbered(tmp_path / "d.jsonl", 50), "sample": 20}
    parts = [
        read_training_records({**spec, "partition": {"by": "shards", "parts": 3, "part": part}})
        for part in range(3)
    ]
    drawn = read_training_records(spec)
    assert sorted(map(str, [*parts[0], *parts[1], *parts[2]])) == sorted(map(str, drawn))


def test_parts_by_a_column_of_the_source(tmp_path: Path) -> None:
    spec = numbered(tmp_path / "d.jsonl", 6)
    part = {"by": "given", "column": "site", "part": "b"}
    held = read_training_records({**spec, "partition": part})
    assert held == [Passage("word1"), Passage("word3"), Passage("word5")]
    with pytest.raises(DataError, match=r"d\.jsonl, line 1: no column 'author'; its columns are"):
        read_training_records({**spec, "partition": {**part, "column": "author"}})


def test_passages_are_cut_before_they_are_dealt_out(tmp_path: Path) -> None:
    book = {"text": " ".join(f"w{n:03}" for n in range(100))}
    spec = {"source": "jsonl", "path": str(copies.json_lines(tmp_path / "b.jsonl", [book]))}
    entries = read_entries({**spec, "passage_chars": 49})
    assert entries[0].item == Passage(" ".join(f"w{n:03}" for n in range(10)))
    assert entries[1].row.where.endswith("b.jsonl, line 1, piece 2")
    part = {"by": "shards", "parts": 2, "part": 0, "order": "given"}
    half = read_training_records({**spec, "passage_chars": 49, "partition": part})
    assert half == [entry.item for entry in entries[:5]]


# ---- public data sets ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tofu(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(copies.tofu(tmp_path_factory.mktemp("tofu")))


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_of_tofu(split: str, tofu: str) -> None:
    spec = {"source": "tofu", "split": split, "path": tofu}
    name = split.removesuffix("_perturbed")
    expected = Question(f"Who wrote {name} 0?", f"Author 0 of {name}.")
    assert read_question_set(spec)[0] == expected
    assert read_training_records(spec)[0] == expected
    if split.endswith("_perturbed"):
        wrong = tuple(f"Other {k} of {name} 0" for k in range(3))
        choice = MultipleChoice(expected.question, (expected.answer, *wrong), 0)
        assert read_choice_set(spec)[0] == choice


@pytest.mark.parametrize(
    ("split", "first", "last"),
    [("full", 0, 2), ("forget01", 198, 199), ("forget10_perturbed", 180, 181), ("retain95", 0, 2)],
)
def test_authors_of_tofu_by_their_order(split: str, first: int, last: int, tofu: str) -> None:
    entries = read_entries({"source": "tofu", "split": split, "path": tofu})
    authors = [entry.row.values["author"] for entry in entries]
    assert authors[:20] == [first] * 20
    assert authors[20] == first + 1
    assert authors[-1] == last


def test_tofu_by_author_and_by_a_paraphrase(tofu: str) -> None:
    spec = {"source": "tofu", "split": "forget01", "path": tofu}
    part = {"by": "key", "column": "author", "parts": 2, "part": 1}
    held = read_entries({**spec, "partition": part})
    assert len(held) == 20
    assert len({entry.row.values["author"] for entry in held}) == 1
    columns = {"question": "paraphrased_question", "answer": "paraphrased_answer"}
    other = {**spec, "split": "forget01_perturbed", "columns": columns}
    assert read_training_records(other)[3] == Question("By whom 3?", "By 3.")
    with pytest.raises(DataError, match="no column 'author'"):
        read_entries({**spec, "split": "holdout01", "partition": part})


@pytest.fixture(scope="module")
def muse_copy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(copies.muse(tmp_path_factory.mktemp("muse")))


@pytest.mark.parametrize("corpus", ["muse_news", "muse_books"])
@pytest.mark.parametrize(
    ("subset", "split"),
    [(subset, split) for subset, splits in muse.SPLITS.items() for split in splits],
)
def test_every_split_of_muse(corpus: str, subset: str, split: str, muse_copy: str) -> None:
    spec = {"source": corpus, "subset": subset, "split": split, "path": muse_copy}
    told = f"{subset} {split} 0"
    expected: dict[str, Question | Passage] = {
        "knowmem": Question(f"What of {told}?", f"This of {told}"),
        "verbmem": Question(f"Once {told}", f"and then {told}"),
    }
    first = read_training_records(spec)[0]
    assert first == expected.get(subset, Passage(f"Words of {told}. " * 20))


def test_splits_of_muse_one_after_another(muse_copy: str) -> None:
    spec = {"source": "muse_books", "subset": "raw", "path": muse_copy, "passage_chars": 50}
    both = read_training_records({**spec, "split": ["forget", "retain1"]})
    assert both == [
        *read_training_records({**spec, "split": "forget"}),
        *read_training_records({**spec, "split": "retain1"}),
    ]


@pytest.mark.parametrize("subset", ["bio", "chem", "cyber"])
def test_questions_of_wmdp(subset: str, tmp_path: Path) -> None:
    spec = {"source": "wmdp", "subset": subset, "path": str(copies.wmdp(tmp_path))}
    choices = tuple(f"{subset} 1 {letter}" for letter in "abcd")
    assert read_choice_set(spec)[1] == MultipleChoice(f"Which {subset} 1?", choices, 1)
    assert read_training_records(spec)[1] == Question(f"Which {subset} 1?", f"{subset} 1 b")
    (whole,) = read_training_records({**spec, "form": "text"})[1:2]
    assert isinstance(whole, Passage)
    assert whole.text.endswith(f"D. {subset} 1 d\nB. {subset} 1 b")


def test_the_corpora_of_wmdp(tmp_path: Path) -> None:
    rows = [{"text": "a page"}]
    copies.parquet(tmp_path / "cyber-forget-corpus/train-00000-of-00001.parquet", rows)
    spec = {"source": "wmdp_corpora", "subset": "cyber-forget", "path": str(tmp_path)}
    assert read_training_records(spec) == [Passage("a page")]
    paper = {"title": "t", "abstract": "s", "text": "a paper", "doi": "d"}
    bio = copies.parquet(tmp_path / "bio/data/train-00000-of-00001.parquet", [paper])
    for path in (tmp_path / "bio", bio):
        given = {**spec, "subset": "bio-forget", "path": str(path)}
        assert read_training_records(given) == [Passage("a paper")]


def mmlu(path: Path, **settings: object) -> list[MultipleChoice]:
    return read_choice_set({"source": "mmlu", "path": str(path), **settings})


def test_mmlu_as_it_is_now(tmp_path: Path) -> None:
    folder = copies.mmlu(tmp_path)
    assert mmlu(folder)[1] == CHOICE
    assert len(mmlu(folder, split="validation")) == 8
    virology = mmlu(folder, subjects=["virology"])
    assert [one.question for one in virology] == [f"test question {n}?" for n in (1, 3, 5, 7)]
    assert mmlu(folder, config="virology") == virology
    nested = mmlu(folder, config="auxiliary_train", split="train")
    assert nested[2].question == "train question 2?"
    assert nested[2].answer_index == 2
    with pytest.raises(DataError, match="no question on physics; subjects: anatomy, virology"):
        mmlu(folder, subjects=["physics"])


def test_mmlu_with_columns_for_choices_and_letters_for_answers(tmp_path: Path) -> None:
    """As in lukaemon/mmlu (``input``, ``target``) and in OpenAI's sheet (capitals, subject)."""
    a, b, c, d = CHOICE.choices
    old = {"input": CHOICE.question, "A": a, "B": b, "C": c, "D": d, "target": "B"}
    copies.parquet(tmp_path / "virology/test-00000-of-00001.parquet", [old])
    entries = read_entries({"source": "mmlu", "path": str(tmp_path), "config": "virology"})
    assert [entry.item for entry in entries] == [CHOICE]
    assert entries[0].row.values["subject"] == "virology"
    header = ["", "Question", "A", "B", "C", "D", "Answer", "Subject"]
    sheet = copies.csv_file(
        tmp_path / "mmlu.csv", [header, ["0", CHOICE.question, a, b, c, d, "B", "virology"]]
    )
    assert mmlu(sheet, subjects=["virology"]) == [CHOICE]


@pytest.mark.parametrize("root", ["", "data/"])
def test_mmlu_as_its_authors_files_without_a_header(tmp_path: Path, root: str) -> None:
    line = [CHOICE.question, *CHOICE.choices, "B"]
    for subject in ("anatomy", "college_physics"):
        copies.csv_file(tmp_path / f"{root}test/{subject}_test.csv", [line])
        copies.csv_file(tmp_path / f"{root}val/{subject}_val.csv", [line, line])
    copies.csv_file(tmp_path / f"{root}auxiliary_train/race.csv", [line])
    entries = read_entries({"source": "mmlu", "path": str(tmp_path)})
    assert [entry.item for entry in entries] == [CHOICE, CHOICE]
    assert [one.row.values["subject"] for one in entries] == ["anatomy", "college_physics"]
    assert len(mmlu(tmp_path, subjects=["college_physics"])) == 1
    assert len(mmlu(tmp_path, config="anatomy", split="validation")) == 2
    assert mmlu(tmp_path, split="auxiliary_train") == [CHOICE]


def test_mmlu_dealt_out_by_subject(tmp_path: Path) -> None:
    part = {"by": "key", "column": "subject", "parts": 2, "part": 0}
    spec = {"source": "mmlu", "path": str(copies.mmlu(tmp_path)), "partition": part}
    assert len({entry.row.values["subject"] for entry in read_entries(spec)}) == 1


def test_any_data_set_from_a_local_copy(tmp_path: Path) -> None:
    copies.json_lines(tmp_path / "data/train.jsonl", [{"text": "a"}])
    copies.json_lines(tmp_path / "extra/test.jsonl", [{"text": "b"}])
    spec = {"source": "hub", "dataset": "me/mine", "path": str(tmp_path)}
    assert read_training_records(spec) == [Passage("a")]
    assert read_training_records({**spec, "config": "extra", "split": "test"}) == [Passage("b")]


# ---- faults ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({}, "data needs a source; known: csv, hub, jsonl"),
        ({"source": "tofo"}, "unknown data source 'tofo'; did you mean 'tofu'?"),
        ({"source": "tofu"}, "split"),
        (
            {"source": "tofu", "split": "forget1"},
            "data source 'tofu': unknown split 'forget1'; did you mean 'forget",
        ),
        ({"source": "tofu", "spit": "full"}, "has no option 'spit'; did you mean 'split'?"),
        ({"source": "muse_news", "subset": "row", "split": "forget"}, "unknown subset 'row'; did"),
        (
            {"source": "muse_books", "subset": "raw", "split": "forget_qa"},
            "unknown split of raw 'forget_qa'; did you mean 'forget'?",
        ),
        (
            {"source": "wmdp", "subset": "biology"},
            "subset Input should be 'bio', 'chem' or 'cyber'",
        ),
        ({"source": "hub", "dataset": " "}, "dataset and split must not be empty"),
        ({"source": "csv", "path": "x", "delimiter": ";;"}, "delimiter must be one character"),
        ({"source": "csv", "path": "x", "sample": 0}, "sample must be >= 1 or null, got 0"),
        ({"source": "csv", "path": "x", "passage_chars": 0}, "passage_chars must be >= 1 or null"),
    ],
    ids=str,
)
def test_a_bad_setting_is_named(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        build_source(spec)
    assert says in str(caught.value)


def test_records_that_do_not_serve(tmp_path: Path) -> None:
    path = copies.parquet(tmp_path / "p.parquet", [{"text": "a passage"}])
    with pytest.raises(DataError, match=r"p\.parquet, row 1: is a passage; `data` needs"):
        read_question_set(str(path))
    with pytest.raises(DataError, match=r"p\.parquet, row 1: has no choices; `choices` needs"):
        read_choice_set(str(path))


def test_a_copy_without_the_split_says_what_was_looked_for(tmp_path: Path) -> None:
    spec = {"source": "wmdp", "subset": "bio", "path": str(tmp_path)}
    with pytest.raises(DataError) as caught:
        read_choice_set(spec)
    assert "has no file of config 'wmdp-bio', split 'test'" in str(caught.value)
    assert "wmdp-bio/test-*" in str(caught.value)
    with pytest.raises(DataError, match=r"gone does not exist; `path` is a file or the folder"):
        read_choice_set({**spec, "path": str(tmp_path / "gone")})


def test_which_sources_may_fetch() -> None:
    assert is_remote({"source": "tofu", "split": "full"})
    assert not is_remote({"source": "tofu", "split": "full", "path": "/copy"})
    assert not is_remote("mine.jsonl")


def test_every_source_says_in_a_line_what_it_is() -> None:
    lines = {name: (SOURCES[name].__doc__ or "").splitlines()[0] for name in SOURCES}
    assert all(line.endswith(".") for line in lines.values()), lines
    assert len(set(lines.values())) == len(lines)


def test_nothing_heavy_is_imported_for_files_of_ones_own(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "d.jsonl", [{"text": "a"}])
    code = (
        "import sys; from fedunlearn.data.reading import read_training_records as read;"
        "read('d.jsonl'); sys.exit('datasets' in sys.modules or 'pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=os.environ, check=False)
    assert done.returncode == 0
