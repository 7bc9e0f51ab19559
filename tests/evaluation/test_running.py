"""Resuming, and never a stale number."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedunlearn.data.records import write_jsonl
from fedunlearn.errors import InputError
from fedunlearn.evaluation import (
    SUITES,
    Bench,
    Evaluated,
    evaluate_suite,
    identify,
    read_retrained,
    read_summary,
    write_retrained,
)
from fedunlearn.evaluation.answering import Answering
from fedunlearn.evaluation.samples import Record, Sample
from fedunlearn.models.loading import LoadedModel, fingerprint
from tests.world import pocket_model, questions

WRONG = ["Nobody knows.", "It is a fish."]


def options(folder: Path, *, count: int = 6) -> dict[str, Any]:
    asked = questions(2 * count)
    rows: list[dict[str, object]] = [
        {
            "question": one.question,
            "answer": one.answer,
            "paraphrased_answer": f"So: {one.answer}",
            "perturbed_answer": WRONG,
        }
        for one in asked
    ]
    write_jsonl(folder / "forget.jsonl", rows[:count])
    write_jsonl(folder / "holdout.jsonl", rows[count:])
    write_jsonl(
        folder / "choices.jsonl",
        [{"question": "Which?", "choices": ["a b", "c"], "answer_index": 0}],
    )
    return {
        "sets": [
            {
                "name": "forget",
                "kind": "forget",
                "data": str(folder / "forget.jsonl"),
                "choices": str(folder / "choices.jsonl"),
            },
            {"name": "holdout", "kind": "holdout", "data": str(folder / "holdout.jsonl")},
        ],
        "max_new_tokens": 4,
    }


def run(
    folder: Path, out: Path, base: LoadedModel, *, batch_size: int = 3, **more: Any
) -> Evaluated:
    suite = SUITES.build("own", options(folder))
    return evaluate_suite("own", suite, Bench(base, batch_size), identify(base), out, **more)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the samples that are measured from now on."""
    measured: list[str] = []
    plain = Answering.measure

    def measure(self: Answering, bench: Bench, samples: list[Sample]) -> list[Record]:
        measured.extend(one.id for one in samples)
        return plain(self, bench, samples)

    monkeypatch.setattr(Answering, "measure", measure)
    return measured


def test_what_is_measured_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, out = pocket_model(), tmp_path / "out"
    first = run(tmp_path, out, base)
    measured = counting(monkeypatch)
    again = run(tmp_path, out, base).summary
    assert again == first.summary
    assert again.results == read_summary(out).results
    assert measured == []


def test_a_line_cut_short_and_what_follows_it_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, out = pocket_model(), tmp_path / "out"
    first = run(tmp_path, out, base)
    log = out / "samples" / "forget.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:2]) + lines[2][:10])
    measured = counting(monkeypatch)
    again = run(tmp_path, out, base)
    assert measured == ["2", "3", "4", "5"]
    for one, other in zip(first.summary.results, again.summary.results, strict=True):
        assert one.value == pytest.approx(other.value, abs=1e-5)


def test_another_model_finds_no_record_and_no_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, out = pocket_model(), tmp_path / "out"
    before = run(tmp_path, out, base).summary
    with torch.no_grad():
        base.model.model.norm.weight.mul_(1.5)  # type: ignore[operator, union-attr]
    changed = replace(base, sha256=fingerprint(base.model))

    def fails(*_: Any) -> None:
        raise RuntimeError("stopped")

    monkeypatch.setattr(Answering, "measure", fails)
    with pytest.raises(RuntimeError, match="stopped"):
        run(tmp_path, out, changed)
    assert not (out / "summary.json").exists()
    assert not (out / "samples" / "forget.jsonl").exists()
    monkeypatch.undo()
    after = run(tmp_path, out, changed).summary
    assert after.model.sha256 != before.model.sha256
    assert after.value("forget/answer_probability") != before.value("forget/answer_probability")


def test_another_template_or_setting_is_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, out = pocket_model(), tmp_path / "out"
    run(tmp_path, out, base)
    measured = counting(monkeypatch)
    base.tokenizer.chat_template = None
    summary = run(tmp_path, out, base).summary
    assert len(measured) == 12
    assert summary.model.template_sha256 is None
    suite = SUITES.build("own", {**options(tmp_path), "prompts": {"style": "plain"}})
    evaluate_suite("own", suite, Bench(base), identify(base), out)
    assert len(measured) == 24


def test_neither_batch_size_nor_padding_changes_a_result(tmp_path: Path) -> None:
    base = pocket_model()
    one = run(tmp_path, tmp_path / "a", base, batch_size=1).summary
    suite = SUITES.build("own", options(tmp_path))
    many = evaluate_suite(
        "own", suite, Bench(base, 8, padding="left"), identify(base), tmp_path / "b"
    ).summary
    for mine, theirs in zip(one.results, many.results, strict=True):
        assert mine.value == pytest.approx(theirs.value, abs=1e-4), mine.name


def test_without_a_retrained_model_there_is_a_reason_and_no_number(tmp_path: Path) -> None:
    summary = run(tmp_path, tmp_path / "out", pocket_model()).summary
    quality = next(one for one in summary.results if one.name == "forget/forget_quality")
    assert quality.value is None
    assert "fedunlearn retrain" in (quality.reason or "")
    leak = next(one for one in summary.results if one.name == "forget/privleak")
    assert leak.options["retrained_auc"] == 0.5
    assert "proves" in summary.limits[0]
    accuracy = next(one for one in summary.results if one.name == "forget/accuracy")
    assert accuracy.interval is not None
    assert all(one.definition and one.source for one in summary.results)


def test_a_model_against_itself_has_forget_quality_one(tmp_path: Path) -> None:
    base, file = pocket_model(), tmp_path / "retrained.json"
    done = run(tmp_path, tmp_path / "out", base)
    write_retrained(file, identify(base), done.sets, done.records)
    told = ("retrained.json", read_retrained(file))
    summary = run(tmp_path, tmp_path / "out", base, retrained=told).summary
    assert summary.value("forget/forget_quality") == 1.0
    assert summary.value("forget/privleak") == pytest.approx(0.0, abs=1e-6)
    assert summary.retrained is not None
    other = SUITES.build("own", {**options(tmp_path), "prompts": {"style": "plain"}})
    with pytest.raises(InputError, match="other samples, prompts"):
        evaluate_suite("own", other, Bench(base), identify(base), tmp_path / "x", retrained=told)


def test_a_model_that_yields_no_numbers_gets_none(tmp_path: Path) -> None:
    base = pocket_model()
    with torch.no_grad():
        base.model.model.norm.weight.fill_(float("nan"))  # type: ignore[operator, union-attr]
    broken = replace(base, sha256=fingerprint(base.model))
    summary = run(tmp_path, tmp_path / "out", broken).summary
    loss = next(one for one in summary.results if one.name == "forget/answer_probability")
    assert (loss.value, loss.reason) == (None, "6 of 6 scores are not finite numbers")
    json.loads((tmp_path / "out" / "summary.json").read_text())


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("dear diary")
    with pytest.raises(InputError, match="not empty"):
        run(tmp_path, tmp_path / "mine", pocket_model())
