"""Our numbers beside those of the public implementations, on one pico model and pico data.

The values are in ``tests/golden/evaluation``; ``tests/golden/make.py`` says how they are made.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from fedunlearn.evaluation import SUITES, Bench, Summary, evaluate_suite, identify
from tests.golden.make import NEW_TOKENS
from tests.golden.material import golden_model, read_golden, write_data

NEAR = 2e-5
"""Their averages are float32; ours are float64 averages of float32 log-probabilities."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("public")
    write_data(folder)
    return folder


def run(name: str, out: Path, **options: Any) -> tuple[Summary, dict[str, list[dict[str, Any]]]]:
    base = golden_model()
    done = evaluate_suite(name, SUITES.build(name, options), Bench(base, 5), identify(base), out)
    stored = {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()]
        for path in (out / "samples").glob("*.jsonl")
    }
    assert stored == done.records
    return done.summary, stored


def agree(summary: Summary, expected: dict[str, float]) -> None:
    found = {name: summary.value(name) for name in expected}
    assert found == pytest.approx(expected, abs=NEAR)


@pytest.mark.parametrize("style", ["chat", "plain"])
def test_tofu_agrees_with_open_unlearning(data: Path, tmp_path: Path, style: str) -> None:
    golden = read_golden("open_unlearning")[style]
    summary, records = run(
        "tofu",
        tmp_path,
        path=str(data / "tofu"),
        max_new_tokens=NEW_TOKENS,
        prompts={"style": style},
        attacks={"grad_norm": True},
    )
    agree(summary, {k: v for k, v in golden["results"].items() if k != "privleak"})
    assert summary.value("privleak") == pytest.approx(golden["results"]["privleak"], abs=1e-3)
    for attack, scores in golden["scores"].items():
        assert [row[attack] for row in records["forget"]] == pytest.approx(
            scores, rel=1e-4, abs=NEAR
        )
    assert 0 < golden["results"]["forget/extraction_strength"] < 1
    assert 0 < golden["results"]["model_utility"] < 1


def test_muse_agrees_with_muse_bench(data: Path, tmp_path: Path) -> None:
    golden = read_golden("muse_bench")
    summary, records = run("muse", tmp_path, corpus="news", path=str(data / "muse"))
    for name, value in golden["results"].items():
        assert summary.value(name) == pytest.approx(value, abs=1e-4), name
    for attack in ("loss", "min_k"):
        found = [row[attack] for row in records["privleak_forget"]]
        assert found == pytest.approx(golden["scores"][attack], abs=NEAR)
    assert 0 < golden["results"]["verbmem/rouge_l_f1"] < 1


@pytest.mark.parametrize("shots", [0, 5])
def test_mmlu_agrees_with_lm_evaluation_harness(data: Path, tmp_path: Path, shots: int) -> None:
    golden = read_golden("lm_eval")[f"mmlu_{shots}"]
    summary, records = run("mmlu", tmp_path, shots=shots, path=str(data / "mmlu"))
    for subject in ("anatomy", "world_religions"):
        rows = [row for row in records["mmlu"] if row["group"] == subject]
        theirs = golden[f"mmlu_{subject}"]
        for row, values in zip(rows, theirs["log_likelihoods"], strict=True):
            assert row["log_likelihoods"] == pytest.approx(values, abs=1e-4)
        assert summary.value(f"mmlu/{subject}/accuracy") == pytest.approx(theirs["accuracy"])


def test_wmdp_agrees_with_lm_evaluation_harness(data: Path, tmp_path: Path) -> None:
    golden = read_golden("lm_eval")["wmdp"]
    summary, records = run("wmdp", tmp_path, path=str(data / "wmdp"))
    for subject in ("bio", "chem", "cyber"):
        theirs = golden[f"wmdp_{subject}"]
        for row, values in zip(records[subject], theirs["log_likelihoods"], strict=True):
            assert row["log_likelihoods"] == pytest.approx(values, abs=1e-4)
        assert summary.value(f"{subject}/accuracy") == pytest.approx(theirs["accuracy"])
