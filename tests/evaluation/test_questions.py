import math
from pathlib import Path
from typing import Literal

import pytest
import torch

from fedunlearn.data.encoding import encode_answer, encode_prompt
from fedunlearn.data.records import write_jsonl
from fedunlearn.errors import DataError
from fedunlearn.evaluation import EvaluationSet, EvaluationSettings, evaluate, read_bank
from fedunlearn.metrics.rouge import rouge_l_recall
from fedunlearn.models.generation import generate_greedily
from tests.world import pocket_model, questions

BASE = pocket_model()


def settings_for(folder: Path, *, batch_size: int = 3) -> EvaluationSettings:
    asked = questions(5)
    write_jsonl(folder / "q.jsonl", [{"question": q.question, "answer": q.answer} for q in asked])
    write_jsonl(
        folder / "c.jsonl",
        [
            {"question": q.question, "choices": [o.answer for o in asked[:4]], "answer_index": i}
            for i, q in enumerate(asked[:4])
        ],
    )
    one = EvaluationSet(
        name="all",
        kind="forget",
        domain="places",
        data=str(folder / "q.jsonl"),
        choices=str(folder / "c.jsonl"),
    )
    return EvaluationSettings(sets=(one,), batch_size=batch_size, max_new_tokens=8)


def log_prob(question: str, answer: str) -> tuple[float, int]:
    """Teacher-forced log p of the answer, one sequence, no padding, float64."""
    prompt, target = encode_prompt(BASE.tokenizer, question), encode_answer(BASE.tokenizer, answer)
    with torch.no_grad():
        logits = BASE.model(input_ids=torch.tensor([[*prompt, *target]])).logits[0].double()
    rows = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    return float(sum(row[token] for row, token in zip(rows, target, strict=True))), len(target)


def test_scores_equal_a_slow_question_by_question_computation(tmp_path: Path) -> None:
    chosen = settings_for(tmp_path)
    scores = evaluate(BASE, read_bank(chosen), chosen)["all"]
    asked = questions(5)
    for i, question in enumerate(asked):
        total, count = log_prob(question.question, question.answer)
        expected = torch.tensor(total / count).exp().item()
        assert scores.answer_probability[i] == pytest.approx(expected, rel=1e-4)
        prompt = encode_prompt(BASE.tokenizer, question.question)
        (answer,) = generate_greedily(BASE.model, BASE.tokenizer, [prompt], max_new_tokens=8)
        assert scores.rouge_l_recall[i] == rouge_l_recall(answer, question.answer)
    for i, question in enumerate(asked[:4]):
        scored = [log_prob(question.question, other.answer) for other in asked[:4]]
        means = [total / count for total, count in scored]
        assert scores.choice_correct[i] == float(means.index(max(means)) == i)


@pytest.mark.parametrize("kind", ["forget", "retain"])
def test_other_wordings_and_wrong_answers_give_a_truth_ratio(
    tmp_path: Path, kind: Literal["forget", "retain"]
) -> None:
    asked, wrong = questions(3), ["It is a fish.", "Nobody knows."]
    rows: list[dict[str, object]] = [
        {
            "question": one.question,
            "answer": one.answer,
            "paraphrased_answer": f"So: {one.answer}",
            "perturbed_answer": wrong,
        }
        for one in asked
    ]
    write_jsonl(tmp_path / "q.jsonl", rows)
    one = EvaluationSet(name="s", kind=kind, domain="d", data=str(tmp_path / "q.jsonl"))
    chosen = EvaluationSettings(sets=(one,), max_new_tokens=2)
    scores = evaluate(BASE, read_bank(chosen), chosen)["s"]
    for question, found in zip(asked, scores.truth_ratio, strict=True):
        sums = [log_prob(question.question, f"So: {question.answer}")]
        sums += [log_prob(question.question, text) for text in wrong]
        right, *others = (total / count for total, count in sums)
        ratio = math.exp(sum(others) / len(others) - right)
        expected = min(ratio, 1 / ratio) if kind == "forget" else max(0.0, 1 - ratio)
        assert found == pytest.approx(expected, abs=1e-4)
    assert len(scores.extraction_strength) == 3
    assert min(scores.extraction_strength) > 0


def test_the_batch_size_does_not_change_the_answers(tmp_path: Path) -> None:
    one, many = (settings_for(tmp_path, batch_size=size) for size in (1, 16))
    first = evaluate(BASE, read_bank(one), one)["all"]
    second = evaluate(BASE, read_bank(many), many)["all"]
    assert first.rouge_l_recall == second.rouge_l_recall
    assert first.choice_correct == second.choice_correct
    assert first.answer_probability == pytest.approx(second.answer_probability, rel=1e-4)


def test_progress_ends_at_the_number_of_questions(tmp_path: Path) -> None:
    chosen, seen = settings_for(tmp_path), list[tuple[int, int]]()
    evaluate(BASE, read_bank(chosen), chosen, progress=lambda *args: seen.append(args))
    assert seen[-1] == (9, 9)


def test_faults_of_the_settings_and_the_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'x' needs data, choices or both"):
        EvaluationSet(name="x", kind="retain")
    with pytest.raises(ValueError, match="'x' must name its domain"):
        EvaluationSet(name="x", kind="forget", data="d")
    same = EvaluationSet(name="x", kind="retain", data=str(tmp_path / "gone.jsonl"))
    with pytest.raises(ValueError, match="different names"):
        EvaluationSettings(sets=(same, same))
    with pytest.raises(DataError, match=r"gone\.jsonl does not exist"):
        read_bank(EvaluationSettings(sets=(same,)))
