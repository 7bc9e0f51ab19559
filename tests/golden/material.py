"""A pico model that half knows a pico world, and the world in the layouts of the public data."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from fedunlearn.data.records import Question
from fedunlearn.evaluation.prompts import PromptSettings, scored
from fedunlearn.models.loading import LoadedModel, fingerprint
from fedunlearn.models.tiny import TinySize, build_model, train_tokenizer
from fedunlearn.objectives import RetainNLL
from fedunlearn.training.loop import TrainingSettings, train
from tests.hub_copies import json_lines, parquet
from tests.world import questions

GOLDEN = Path(__file__).parent / "evaluation"
WEIGHTS = GOLDEN / "model.safetensors"
SIZE = TinySize(
    hidden_size=32, layers=2, heads=4, key_value_heads=2, feed_forward=48, vocabulary=400
)
FORGET, HOLDOUT, OTHER = 12, 8, 6
LETTERS = "ABCD"


def pairs() -> list[Question]:
    """Invented questions and answers: the model is taught some of them."""
    return list(questions(FORGET + HOLDOUT + OTHER))


def texts() -> list[str]:
    return [f"{one.question} {one.answer}" for one in pairs()]


def tokenizer() -> Any:
    """With a template and, like most, with a BOS that it sets itself."""
    words = [*texts(), "The following are multiple choice questions (with answers) about anatomy."]
    return train_tokenizer([*words, "A. B. C. D. Question: Answer:"], vocabulary=SIZE.vocabulary)


def golden_model() -> LoadedModel:
    """The stored model, float32."""
    made = tokenizer()
    model = build_model(made, SIZE, seed=0)
    model.load_state_dict({k: v.float() for k, v in load_file(WEIGHTS).items()}, strict=False)
    model.tie_weights()
    model.eval().requires_grad_(False)
    return LoadedModel(model, made, "golden", fingerprint(model))


def teach_and_store() -> None:
    """Teach the model some of it by half, round it to bfloat16, and store it."""
    made = tokenizer()
    model = build_model(made, SIZE, seed=0)
    taught = [*pairs()[:9], *pairs()[FORGET : FORGET + 3]]  # some of either, so that no AUC is 1
    shown = [(one.question, one.answer) for one in pairs()[FORGET : FORGET + 2]]
    examples = [
        scored(made, one.question, one.answer, PromptSettings(style=style), shots=shots)
        for one in taught
        for style, shots in (("chat", ()), ("plain", ()), ("plain", shown))
    ]
    model.requires_grad_(True)
    chosen = TrainingSettings(
        objective={"name": "retain_nll"}, learning_rate=1e-2, epochs=16, batch_size=8
    )
    drawn = torch.Generator().manual_seed(0)
    train(model, examples, RetainNLL(), chosen=chosen, pad_id=made.pad_token_id, generator=drawn)
    weights = {name: one.detach().bfloat16() for name, one in model.named_parameters()}
    GOLDEN.mkdir(parents=True, exist_ok=True)
    save_file(weights, WEIGHTS)


def write_data(folder: Path) -> None:
    """Small copies of TOFU, MUSE, WMDP and MMLU in the layouts of the hub."""
    told = pairs()
    _tofu(folder / "tofu", told)
    _muse(folder / "muse", told)
    for subject in ("bio", "chem", "cyber"):
        rows = _choices(told, subject)
        parquet(folder / "wmdp" / f"wmdp-{subject}" / "test-00000-of-00001.parquet", rows)
    for split in ("test", "dev"):
        rows = [
            {**row, "subject": subject}
            for subject in ("anatomy", "world_religions")
            for row in _choices(told, f"{split} {subject}")
        ]
        parquet(folder / "mmlu" / "all" / f"{split}-00000-of-00001.parquet", rows)


def _tofu(folder: Path, told: Sequence[Question]) -> None:
    wrong = [one.answer for one in told]
    rows = [
        {
            "question": one.question,
            "answer": one.answer,
            "paraphrased_answer": f"{one.answer.rstrip('.')}, indeed.",
            "perturbed_answer": [wrong[(place + step) % len(wrong)] for step in (2, 4, 6)],
        }
        for place, one in enumerate(told)
    ]
    held = rows[FORGET : FORGET + HOLDOUT]
    plain = [{key: row[key] for key in ("question", "answer")} for row in held]
    bare = [{k: v for k, v in row.items() if k != "paraphrased_answer"} for row in rows]
    json_lines(folder / "forget10_perturbed.json", rows[:FORGET])
    json_lines(folder / "holdout10.json", plain)
    json_lines(folder / "retain_perturbed.json", rows[2 : 2 + OTHER])
    json_lines(folder / "real_authors_perturbed.json", bare[4 : 4 + OTHER])
    json_lines(folder / "world_facts_perturbed.json", bare[6 : 6 + OTHER])


def _muse(folder: Path, told: Sequence[Question]) -> None:
    def table(name: str, rows: list[dict[str, Any]]) -> None:
        parquet(folder / f"{name}-00000-of-00001.parquet", rows)

    asked = [{"question": one.question, "answer": one.answer} for one in told]
    for kind, start in (("forget", 0), ("retain", 6)):
        table(f"knowmem/{kind}_qa", asked[start : start + 6])
        table(f"knowmem/{kind}_qa_icl", asked[FORGET : FORGET + 2])
    cut = [
        {"prompt": f"Question: {one.question}\nAnswer: {begun}", "gt": rest}
        for one in told[:FORGET]
        for begun, rest in [one.answer.split(" ", 1)]
    ]
    table("verbmem/forget", cut)
    passages = [f"Question: {one.question}\nAnswer: {one.answer}" for one in told]
    parts = {"forget": passages[:8], "retain": passages[4:12], "holdout": passages[FORGET:]}
    for split, rows in parts.items():
        table(f"privleak/{split}", [{"text": text} for text in rows])
    for subset in ("scal", "sust"):
        for fold in range(1, 5):
            table(f"{subset}/forget_{fold}", [{"text": text} for text in passages[:fold]])


def _choices(told: Sequence[Question], salt: str) -> list[dict[str, Any]]:
    answers = [" ".join(one.answer.split()[:3]) for one in told]
    return [
        {
            "question": f" {one.question} ({salt[:4]})",
            "choices": [
                " ".join(answers[(place + step) % len(answers)].split()[:3])
                for step in (0, 2, 4, 6)
            ],
            "answer": place % 4,
        }
        for place, one in enumerate(told[: 2 * OTHER])
    ]


def read_golden(name: str) -> dict[str, Any]:
    """Values that a public implementation gave."""
    found: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return found
