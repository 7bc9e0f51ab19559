"""Probes on pocket models: what is measured, what comes back, what is done again."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedunlearn.config import load_probes
from fedunlearn.data.encoding import collate, encode_record
from fedunlearn.data.records import write_jsonl
from fedunlearn.errors import ConfigError, InputError
from fedunlearn.evaluation import SUITES, Suite, Summary, read_summary
from fedunlearn.evaluation.asking import Asking, PromptProbes
from fedunlearn.evaluation.bench import Bench
from fedunlearn.evaluation.prompts import PromptSettings, opened_ids, prompt_ids
from fedunlearn.evaluation.robustness import ProbeSettings, Subject, probe
from fedunlearn.evaluation.robustness.planning import Relearning, Treated, plan_probes
from fedunlearn.evaluation.robustness.verdict import recovery
from fedunlearn.evaluation.samples import Record, Sample
from fedunlearn.metrics import RougeLRecall
from fedunlearn.models.adapters import LoraSettings
from fedunlearn.models.loading import LoadedModel, fingerprint
from fedunlearn.models.merged import as_loaded
from fedunlearn.training.relearning import RelearnSettings, relearning
from tests.world import pocket_model, questions

CHOSEN = ProbeSettings(
    relearning=RelearnSettings(
        steps=(1, 2),
        rows=2,
        learning_rate=1e-2,
        lora=LoraSettings(rank=4, alpha=8, target_modules=("all-linear",)),
    ),
    formats=("bfloat16", "int8"),
)
STAGES = ("as-is", "prompts", "bfloat16", "int8", "relearn-0", "relearn-1", "relearn-2")


def suite(folder: Path, count: int = 6) -> Suite:
    rows: list[dict[str, object]] = [
        {
            "question": one.question,
            "answer": one.answer,
            "paraphrased_question": f"Tell me: {one.question}",
        }
        for one in questions(count)
    ]
    write_jsonl(folder / "forget.jsonl", rows)
    write_jsonl(
        folder / "choices.jsonl",
        [
            {"question": one.question, "choices": [one.answer, "No."], "answer_index": 0}
            for one in questions(count)
        ],
    )
    one = {"name": "forget", "kind": "forget", "data": str(folder / "forget.jsonl")}
    kept = {"name": "kept", "kind": "retain", "data": str(folder / "forget.jsonl")}
    sets = [{**one, "choices": str(folder / "choices.jsonl")}, kept]
    return SUITES.build("own", {"sets": sets, "max_new_tokens": 4})


def subjects(*models: LoadedModel) -> list[Subject]:
    def loaded(base: LoadedModel) -> tuple[LoadedModel, None]:
        return base, None

    parts = ("unlearned", "original", "retrained")
    return [
        Subject(part, lambda base=base: loaded(base))  # type: ignore[misc,arg-type]
        for part, base in zip(parts, models, strict=False)
    ]


def run(
    folder: Path, *models: LoadedModel, chosen: ProbeSettings = CHOSEN, count: int = 6
) -> Summary:
    asked = suite(folder, count)
    return probe("own", asked, subjects(*models), chosen, folder / "out", batch_size=4)


def counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    measured: list[str] = []
    plain = Treated.measure

    def measure(self: Treated, bench: Bench, samples: Sequence[Sample]) -> list[Record]:
        measured.extend(one.id for one in samples)
        return plain(self, bench, samples)

    monkeypatch.setattr(Treated, "measure", measure)
    return measured


def test_every_model_is_measured_at_every_stage_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [pocket_model(seed=seed) for seed in range(3)]
    summary = run(tmp_path, *models)
    assert summary.results == read_summary(tmp_path / "out").results
    names = {one.name for one in summary.results}
    for part in ("unlearned", "original", "retrained"):
        for stage in STAGES:
            assert f"{part}/{stage}/forget/rouge_l_recall" in names
            assert (f"{part}/{stage}/forget.choices/choice_accuracy" in names) == (
                stage != "prompts"
            )
    assert not any("kept" in name for name in names)
    assert set(summary.beside) == {"original", "retrained"}
    assert summary.probes is not None
    assert "proves no erasure" in summary.limits[0]
    assert [fingerprint(one.model) for one in models] == [one.sha256 for one in models]
    measured = counting(monkeypatch)
    assert run(tmp_path, *models).results == summary.results
    assert measured == []


def test_a_stage_that_is_missing_is_measured_again_with_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = pocket_model()
    first = run(tmp_path, base, pocket_model(seed=1))
    folder = tmp_path / "out" / "samples" / "unlearned"
    (folder / "relearn-2.forget.jsonl").unlink()
    (folder / "int8.forget.jsonl").unlink()
    measured = counting(monkeypatch)
    again = run(tmp_path, base, pocket_model(seed=1))
    assert sorted(measured) == sorted([*map(str, range(6)), *_kept(tmp_path)])
    for one, other in zip(first.results, again.results, strict=True):
        assert one.value == pytest.approx(other.value, abs=1e-5), one.name


def _kept(folder: Path) -> list[str]:
    (lessons,) = (
        one for one in plan_probes(suite(folder), CHOSEN).treatments if one.kind == "relearning"
    )
    return [one.id for one in lessons.stages[0].sets["forget"].samples]


def test_rows_that_are_learned_are_measured_nowhere(tmp_path: Path) -> None:
    plan = plan_probes(suite(tmp_path), CHOSEN)
    lessons = plan.treatments[-1]
    assert isinstance(lessons, Relearning)
    taught = {sample.prompt for _, sample in lessons.lessons}
    assert len(taught) == 2
    for stage in lessons.stages:
        for one in stage.sets.values():
            assert len(one.samples) == 4
            assert not taught & {sample.prompt for sample in one.samples}
    other = plan_probes(suite(tmp_path), replace(CHOSEN, seed=5)).treatments[-1]
    assert isinstance(other, Relearning)
    assert other.lessons != lessons.lessons
    digests = {one.sha256 for stage in lessons.stages for one in stage.sets.values()}
    assert len(digests) == 2 * len(lessons.stages)


def taught(base: LoadedModel, count: int, steps: int) -> LoadedModel:
    """The model once it has learned the first questions by heart."""
    told = [encode_record(base.tokenizer, one, max_length=64) for one in questions(count)]
    chosen = RelearnSettings(steps=(steps,), batch_size=count, learning_rate=1e-2, lora=None)
    with relearning(base, told, chosen, seed=3) as relearner:
        relearner.advance(steps)
        weights = {name: one.detach().clone() for name, one in base.model.named_parameters()}
    with torch.no_grad():
        for name, weight in base.model.named_parameters():
            weight.copy_(weights[name])
    return as_loaded(base, base.model)


def suppressed(base: LoadedModel) -> LoadedModel:
    """The model after gradient ascent on what it knows, until its loss there is above 2."""
    told = [encode_record(base.tokenizer, one, max_length=64) for one in questions(12)]
    batch = collate(told, pad_id=0)
    base.model.requires_grad_(True)
    optimizer = torch.optim.SGD(base.model.parameters(), lr=0.05)
    for _ in range(200):
        seen = base.model(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=batch.labels
        )
        if float(seen.loss.detach()) > 2:
            break
        (-seen.loss).backward()
        torch.nn.utils.clip_grad_norm_(base.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return as_loaded(base, base.model)


def test_what_is_only_suppressed_comes_back_and_what_was_never_known_does_not(
    tmp_path: Path,
) -> None:
    original, hidden = (taught(pocket_model(), 12, 80) for _ in range(2))
    hidden, never = suppressed(hidden), pocket_model()
    full = RelearnSettings(steps=(5,), rows=4, learning_rate=3e-3, lora=None)
    chosen = ProbeSettings(relearning=full, formats=(), prompts=None)
    summary = run(tmp_path, hidden, original, never, chosen=chosen, count=12)
    name = "relearn-5/forget/answer_probability/recovery"
    found = next(one for one in summary.results if one.name == name)
    assert found.value is not None
    assert found.value > 0.5
    assert found.flag == "comes-back"
    assert found.options["learned_anew"] < 0.1
    alone = run(tmp_path, never, original, never, chosen=chosen, count=12)
    value = next(one.value for one in alone.results if one.name == name)
    assert value == pytest.approx(0.0, abs=1e-6)


def test_what_rounding_undoes_is_flagged_and_without_an_original_there_is_a_reason(
    tmp_path: Path,
) -> None:
    low, high = [0.0, 0.1, 0.0, 0.1], [0.9, 0.8, 0.9, 0.8]
    back = recovery("x", "quantization", {"unlearned": (low, high), "original": (high, high)})
    assert (back.value, back.flag) == (pytest.approx(1.0), "undone-by-rounding")
    none = recovery("x", "quantization", {"unlearned": (low, low), "original": (high, high)})
    assert (none.value, none.flag) == (0.0, None)
    alone = recovery("x", "relearning", {"unlearned": (low, high), "original": (high, high)})
    assert alone.flag == "comes-back-or-learned-anew"
    one = [0.0, 0.0, 0.0, 1.0]
    chance = recovery("x", "prompts", {"unlearned": ([0.0] * 4, one), "original": (high, high)})
    assert chance.value is not None
    assert chance.value > 0.2
    assert chance.flag is None
    harmed = {"unlearned": (low, low), "original": (high, high), "retrained": (high, low)}
    assert recovery("x", "relearning", harmed).value == 0.0
    summary = run(tmp_path, pocket_model(), chosen=replace(CHOSEN, relearning=None, prompts=None))
    (found,) = [x for x in summary.results if x.name == "int8/forget/rouge_l_recall/recovery"]
    assert found.value is None
    assert "--original" in (found.reason or "")


@pytest.mark.parametrize("style", ["package", "chat", "plain"])
def test_each_way_of_asking_is_generated_and_the_best_counts(style: Any) -> None:
    base = pocket_model()
    one = Sample("0", "Where is it?", "one two three four", rewordings=("Which place?",))
    task = Asking(
        prompts=PromptSettings(style=style, system_prompt=""),
        max_new_tokens=3,
        probes=PromptProbes(prefixes=("Say: ",), openings=("Sure:",), words_given=9),
    )
    (record,) = task.measure(Bench(base), [one])
    ways = ["plain", "reworded_1", "prefix_1", "opening_1", "words_given"]
    assert list(record["by_probe"]) == list(record["generated"]) == ways
    assert record["rouge_l_recall"] == max(record["by_probe"].values())
    rouge = RougeLRecall()
    assert record["by_probe"]["words_given"] == rouge(
        record["generated"]["words_given"], "three four"
    )
    prompt = prompt_ids(base.tokenizer, one.prompt, task.prompts)
    opened = opened_ids(base.tokenizer, one.prompt, "Sure:", task.prompts)
    text = base.tokenizer.decode(opened)  # type: ignore[attr-defined]
    assert text.endswith("Sure:")
    assert opened[-1] != base.tokenizer.eos_token_id
    if style != "plain":
        assert opened[: len(prompt)] == prompt


def test_words_are_never_all_given_away() -> None:
    task = Asking(prompts=PromptSettings(style="package"), max_new_tokens=2)
    (record,) = task.measure(Bench(pocket_model()), [Sample("0", "Who?", "Anna")])
    assert "words_given" not in record["by_probe"]


def test_faults_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="formats"):
        load_probes(["formats=[int3]"])
    with pytest.raises(ConfigError, match="at least one of relearning, formats and prompts"):
        load_probes(["formats=[]", "relearning=null", "prompts=null"])
    assert load_probes(["relearning.steps=[0,3]"]).relearning == RelearnSettings(steps=(0, 3))
    kept = SUITES.build(
        "own", {"sets": [{"name": "k", "kind": "retain", "data": str(tmp_path / "f.jsonl")}]}
    )
    write_jsonl(tmp_path / "f.jsonl", [{"question": "a", "answer": "b"}])
    with pytest.raises(InputError, match="no set that should be forgotten"):
        plan_probes(kept, CHOSEN)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "evaluation.json").write_text(json.dumps({"format_version": 1}))
    with pytest.raises(InputError, match="not empty"):
        run(tmp_path, pocket_model())
