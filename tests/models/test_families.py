"""Every supported architecture, from folder to exported model, by the client's own code."""

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from torch import Tensor
from transformers import AutoModelForCausalLM

from fedunlearn.aggregation import MergeSettings, merge_summaries
from fedunlearn.data.encoding import IGNORED, Example, encode_record
from fedunlearn.data.records import write_jsonl
from fedunlearn.errors import InputError
from fedunlearn.export import export_adapter, export_model
from fedunlearn.models.adapters import LoraSettings, attached
from fedunlearn.models.loading import LoadedModel, ModelSettings, fingerprint, load_base
from fedunlearn.models.patching import applied
from fedunlearn.summary import ClientSummary, save_summary
from fedunlearn.training.client_job import run_client_job
from fedunlearn.training.client_settings import ClientIdentity, ClientInstructions
from fedunlearn.training.fisher_pass import FisherSettings
from fedunlearn.training.loop import TrainingSettings
from tests.models.families import CONFIGS, random_model, saved
from tests.world import questions

IDS = torch.arange(12)[None] + 5
INSTRUCTIONS = ClientInstructions(
    seed=3,
    lora=LoraSettings(rank=2, alpha=4, target_modules=("all-linear",)),
    forget=TrainingSettings(objective={"name": "npo"}, learning_rate=1e-2, epochs=1),
    retain=TrainingSettings(objective={"name": "retain_nll"}, learning_rate=1e-2, epochs=1),
    fisher=FisherSettings(num_sequences=3, batch_size=2),
)


@pytest.fixture(params=sorted(CONFIGS))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def loaded(family: str, folder: Path) -> LoadedModel:
    return load_base(ModelSettings(path=str(saved(family, folder / "model")), device="cpu"))


def work(base: LoadedModel, folder: Path, *, role: str = "forget") -> ClientSummary:
    rows: list[dict[str, object]] = [
        {"question": q.question, "answer": q.answer} for q in questions(4)
    ]
    write_jsonl(folder / "data.jsonl", rows)
    data = str(folder / "data.jsonl")
    me = ClientIdentity(id=role, role=role, domain="towns", data=data)  # type: ignore[arg-type]
    return run_client_job(base, me, INSTRUCTIONS)


def logits(model: torch.nn.Module) -> Tensor:
    with torch.no_grad():
        return model(input_ids=IDS, use_cache=False).logits  # type: ignore[no-any-return]


def slow_fisher(base: LoadedModel, examples: list[Example], names: list[str]) -> dict[str, Tensor]:
    """One sequence at a time, by autograd."""
    weights = [base.model.get_parameter(name).requires_grad_() for name in names]
    sums = [torch.zeros_like(weight) for weight in weights]
    for example in examples:
        ids = torch.tensor([example.input_ids])
        scores = base.model(input_ids=ids, use_cache=False).logits[0, :-1]
        loss = torch.nn.functional.cross_entropy(scores, ids[0, 1:])
        for total, gradient in zip(sums, torch.autograd.grad(loss, weights), strict=True):
            total += gradient**2 / len(examples)
    base.model.requires_grad_(False)
    return dict(zip(names, sums, strict=True))


def test_from_folder_to_export(family: str, tmp_path: Path) -> None:
    base = loaded(family, tmp_path)
    forget, retain = (work(base, tmp_path, role=role) for role in ("forget", "retain"))
    assert fingerprint(base.model) == base.sha256

    names = forget.weights()
    assert len(names) >= 2 * 4, "every linear layer of both blocks"
    for summary in (forget, retain):
        moved = [key for key, v in summary.adapter.items() if bool(v.count_nonzero())]
        assert sorted(moved) == sorted(summary.adapter), "a gradient reached every factor"

    examples = [encode_record(base.tokenizer, q, max_length=512) for q in questions(3)]
    for name, expected in slow_fisher(base, examples, names).items():
        assert forget.fisher[name].shape == base.model.get_parameter(name).shape
        torch.testing.assert_close(
            forget.fisher[name].float(), expected, rtol=2**-7, atol=float(expected.max()) * 1e-5
        )

    save_summary(forget, tmp_path / "forget")
    merged = PeftModel.from_pretrained(random_model(family), tmp_path / "forget").merge_and_unload()
    for name in names:
        change = merged.get_parameter(name) - base.model.get_parameter(name)
        torch.testing.assert_close(forget.task_vector(name), change, rtol=1e-3, atol=1e-6)

    delta = merge_summaries([forget, retain], MergeSettings(gamma=3.0)).delta
    with applied(base.model, delta) as model:
        live = logits(model)
    assert not torch.allclose(live, logits(base.model), atol=1e-4)
    export_model(delta, base, tmp_path / "whole", base_sha256=base.sha256)
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "whole").eval()
    torch.testing.assert_close(logits(whole), live, rtol=1e-5, atol=1e-5)
    export_adapter(delta, None, base.name, tmp_path / "adapter", transposed=forget.lora.transposed)
    stock = PeftModel.from_pretrained(random_model(family), tmp_path / "adapter").eval()
    torch.testing.assert_close(logits(stock), live, rtol=1e-3, atol=1e-4)


def test_only_gpt_2_stores_its_weights_transposed(family: str, tmp_path: Path) -> None:
    summary = work(loaded(family, tmp_path), tmp_path)
    assert summary.lora.transposed == (family == "gpt-2")


def test_linear_and_transposed_layers_together_are_refused() -> None:
    lora = LoraSettings(target_modules=("c_fc", "lm_head"))
    model = random_model("gpt-2")
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone(), requires_grad=False)
    with (
        pytest.raises(InputError, match=r"'lm_head' stores .*and 'transformer\.h\.0\.mlp\.c_fc'"),
        attached(model, lora, seed=0),
    ):
        pass


@pytest.mark.parametrize("template", [True, False], ids=["template", "plain"])
@pytest.mark.parametrize("pad", [True, False], ids=["pad", "pad is eos"])
def test_the_end_of_the_answer_is_learned_whatever_pads(
    template: bool, pad: bool, tmp_path: Path
) -> None:
    folder = saved("llama-3", tmp_path / "model", template=template, pad=pad)
    base = load_base(ModelSettings(path=str(folder), device="cpu"))
    end = base.tokenizer.eos_token_id
    assert (base.tokenizer.pad_token_id == end) == (not pad)
    example = encode_record(base.tokenizer, questions(1)[0], max_length=256)
    assert example.input_ids[-1] == example.labels[-1] == end
    assert example.input_ids.count(base.tokenizer.bos_token_id) == 1  # type: ignore[arg-type]
    targets = [label for label in example.labels if label != IGNORED]
    answer = base.tokenizer.encode(questions(1)[0].answer, add_special_tokens=False)
    assert len(targets) == len(example.labels) - example.labels.count(IGNORED)
    if template:
        assert targets == [*answer, end]
    work(base, tmp_path).validate()
