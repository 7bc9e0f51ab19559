from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel

from fedunlearn.data.encoding import encode_record
from fedunlearn.data.records import write_jsonl
from fedunlearn.errors import DataError, InputError, RunError
from fedunlearn.models.adapters import LoraSettings
from fedunlearn.models.loading import ModelSettings, fingerprint, load_base
from fedunlearn.models.patching import applied
from fedunlearn.objectives.rmu import SteeredRMU
from fedunlearn.summary import ClientSummary, load_summary, save_summary
from fedunlearn.training.client_job import run_client_job
from fedunlearn.training.client_settings import ClientIdentity, ClientInstructions, build_objective
from fedunlearn.training.fisher_pass import FisherSettings, estimate_fisher
from fedunlearn.training.loop import TrainingFacts, TrainingSettings, train
from tests.world import pocket_model, questions

FORGET = TrainingSettings(objective={"name": "npo"}, learning_rate=1e-2, epochs=2)
RETAIN = TrainingSettings(objective={"name": "retain_nll"}, learning_rate=1e-2, epochs=1)


def instructions(**changes: object) -> ClientInstructions:
    chosen: dict[str, object] = {
        "seed": 3,
        "lora": LoraSettings(rank=2, alpha=4, layers=(1,)),
        "forget": FORGET,
        "retain": RETAIN,
        "fisher": FisherSettings(num_sequences=3),
    }
    return ClientInstructions(**{**chosen, **changes})  # type: ignore[arg-type]


def identity(folder: Path, *, role: str = "forget", name: str = "town-0") -> ClientIdentity:
    rows: list[dict[str, object]] = [
        {"question": q.question, "answer": q.answer} for q in questions(4)
    ]
    write_jsonl(folder / "data.jsonl", rows)
    return ClientIdentity(id=name, role=role, domain="towns", data=str(folder / "data.jsonl"))  # type: ignore[arg-type]


def same(one: ClientSummary, other: ClientSummary) -> bool:
    pairs = [(one.adapter, other.adapter), (one.fisher, other.fisher)]
    return all(torch.equal(a[key], b[key]) for a, b in pairs for key in a)


def test_a_summary_says_what_was_done_and_the_base_is_untouched(tmp_path: Path) -> None:
    base = pocket_model()
    summary = run_client_job(base, identity(tmp_path), instructions())
    meta = summary.meta
    assert (meta.client_id, meta.role, meta.domain) == ("town-0", "forget", "towns")
    assert (meta.objective, meta.num_examples, meta.base_model_sha256) == ("npo", 4, base.sha256)
    assert meta.training["steps"] == 2
    assert summary.weights() == ["model.layers.1.mlp.down_proj.weight"]
    assert fingerprint(base.model) == base.sha256


def test_the_fisher_is_taken_at_the_bare_weights_not_the_trained_ones(tmp_path: Path) -> None:
    base = pocket_model()
    summary = run_client_job(base, identity(tmp_path), instructions())
    examples = [encode_record(base.tokenizer, q, max_length=512) for q in questions(4)]
    expected = estimate_fisher(
        pocket_model().model, examples, summary.weights(), chosen=FisherSettings(num_sequences=3)
    )
    assert all(torch.equal(summary.fisher[name], value) for name, value in expected.items())


def test_the_fisher_is_refused_at_weights_that_are_not_the_base_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = pocket_model()

    def careless(*given: object, **named: object) -> TrainingFacts:
        facts = train(*given, **named)  # type: ignore[arg-type]
        with torch.no_grad():
            base.model.model.layers[0].mlp.up_proj.base_layer.weight[0, 0] += 1
        return facts

    monkeypatch.setattr("fedunlearn.training.client_job.train", careless)
    both = instructions(lora=LoraSettings(rank=2, target_modules=("up_proj",)))
    with pytest.raises(RunError, match=r"'town-0'.*Fisher must be taken at the weights of 'pocket"):
        run_client_job(base, identity(tmp_path), both)


def test_time_and_memory_of_both_halves_are_told(tmp_path: Path) -> None:
    meta = run_client_job(pocket_model(), identity(tmp_path), instructions()).meta
    for facts in (meta.training, meta.fisher):
        assert facts["seconds"] > 0
        assert facts["peak_memory_bytes"] > 50 * 2**20
    assert meta.fisher["batch_size"] == 4


def test_training_on_a_4_bit_copy_leaves_the_fisher_that_of_the_base(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    made = pocket_model()
    made.model.save_pretrained(tmp_path / "model")
    made.tokenizer.save_pretrained(tmp_path / "model")  # type: ignore[attr-defined]
    path = str(tmp_path / "model")
    plain, quantised = (
        run_client_job(
            load_base(ModelSettings(path=path, device="cpu", quantization=chosen)),
            identity(tmp_path),
            instructions(),
        )
        for chosen in (None, "nf4")
    )
    assert all(torch.equal(plain.fisher[name], quantised.fisher[name]) for name in plain.fisher)
    assert plain.meta.base_model_sha256 == quantised.meta.base_model_sha256
    (one, other) = (summary.task_vector(plain.weights()[0]) for summary in (plain, quantised))
    assert not torch.equal(one, other)
    assert torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), 0) > 0.5


def test_stock_peft_and_our_task_vector_give_the_same_logits(tmp_path: Path) -> None:
    base, ids = pocket_model(), torch.arange(9)[None]
    summary = run_client_job(base, identity(tmp_path), instructions())
    save_summary(summary, tmp_path / "town-0")
    delta = {name: summary.task_vector(name) for name in summary.weights()}
    with torch.no_grad():
        with applied(base.model, delta) as patched:
            ours = patched(input_ids=ids).logits
        stock = PeftModel.from_pretrained(pocket_model().model, tmp_path / "town-0")
        torch.testing.assert_close(stock(input_ids=ids).logits, ours, rtol=1e-4, atol=1e-5)
    assert same(load_summary(tmp_path / "town-0"), summary)


def test_clients_after_one_another_on_one_base_equal_clients_alone(tmp_path: Path) -> None:
    shared = pocket_model()
    run_client_job(shared, identity(tmp_path, role="retain", name="other"), instructions())
    after = run_client_job(shared, identity(tmp_path), instructions())
    alone = run_client_job(pocket_model(), identity(tmp_path), instructions())
    assert same(after, alone)


def test_seed_round_and_name_each_change_the_adapter(tmp_path: Path) -> None:
    def adapter(chosen: ClientInstructions, name: str = "town-0") -> ClientSummary:
        return run_client_job(pocket_model(), identity(tmp_path, name=name), chosen)

    first = adapter(instructions())
    assert same(first, adapter(instructions()))
    for other in (
        adapter(instructions(seed=4)),
        adapter(instructions(server_round=2)),
        adapter(instructions(), name="town-1"),
    ):
        assert not same(first, other)


def test_rmu_s_direction_is_fixed_by_the_seed_and_shared_by_the_domain_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[float]] = []

    def watched(
        model: object, examples: object, objective: SteeredRMU, **rest: object
    ) -> TrainingFacts:
        seen.append(objective.target.tolist())
        return train(model, examples, objective, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr("fedunlearn.training.client_job.train", watched)

    def direction(name: str, *, seed: int = 3, share: str = "domain") -> list[float]:
        rmu = TrainingSettings(objective={"name": "rmu", "layer": 1, "share": share}, epochs=1)
        chosen = instructions(forget=rmu, seed=seed)
        run_client_job(pocket_model(), identity(tmp_path, name=name), chosen)
        return seen[-1]

    assert direction("town-0") == direction("town-1")
    assert direction("town-0", seed=4) != direction("town-0")
    assert direction("town-0", share="client") != direction("town-1", share="client")


def test_faults_name_the_client_its_role_and_its_domain(tmp_path: Path) -> None:
    silent = instructions(lora=LoraSettings(rank=2, alpha=4, target_modules=("nothing",)))
    with pytest.raises(InputError, match=r"forget client 'town-0' \(towns\).*nothing"):
        run_client_job(pocket_model(), identity(tmp_path), silent)
    gone = ClientIdentity(id="t", role="forget", domain="d", data=str(tmp_path / "gone.jsonl"))
    with pytest.raises(DataError, match=r"client 't' \(d\).*gone\.jsonl does not exist"):
        run_client_job(pocket_model(), gone, instructions())


def test_an_adapter_that_learned_nothing_is_refused(tmp_path: Path) -> None:
    frozen = TrainingSettings(
        objective={"name": "npo"}, learning_rate=1e-45, epochs=1, warmup_ratio=0.9
    )
    with pytest.raises(RunError, match="exactly zero"):
        run_client_job(pocket_model(), identity(tmp_path), instructions(forget=frozen))


@pytest.mark.parametrize(
    ("objective", "role", "says"),
    [
        ({"name": "npoo"}, "forget", "unknown objective 'npoo'; did you mean 'npo'"),
        ({"name": "npo", "betta": 1}, "forget", "no option 'betta'; did you mean 'beta'"),
        ({"name": "npo", "beta": -1}, "forget", "beta must be > 0"),
        ({"beta": 1}, "forget", "needs a name"),
        ({"name": "npo"}, "retain", "for forget clients, not retain ones"),
    ],
)
def test_a_wrong_objective_is_explained(objective: dict[str, object], role: str, says: str) -> None:
    with pytest.raises(InputError) as raised:
        build_objective(TrainingSettings(objective=objective), role)  # type: ignore[arg-type]
    assert says in str(raised.value)


def test_a_forget_client_s_own_retained_records_and_refusals_are_read_where_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    def watched(
        model: object, examples: object, objective: object, **rest: object
    ) -> TrainingFacts:
        seen.append({"examples": examples, **rest})
        return train(model, examples, objective, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr("fedunlearn.training.client_job.train", watched)
    base, plain = pocket_model(), identity(tmp_path)
    kept = questions(6)[4:]
    write_jsonl(
        tmp_path / "kept.jsonl", [{"question": q.question, "answer": q.answer} for q in kept]
    )
    (tmp_path / "own.txt").write_text("No comment.\n", encoding="utf-8")
    dpo = TrainingSettings(
        objective={"name": "dpo", "retain_term": "kl"}, learning_rate=1e-2, epochs=1
    )
    run_client_job(
        base,
        replace(
            plain,
            retain_data=str(tmp_path / "kept.jsonl"),
            refusals=str(tmp_path / "own.txt"),
        ),
        instructions(forget=dpo),
    )
    (call,) = seen
    encoded = [encode_record(base.tokenizer, q, max_length=512) for q in kept]
    assert list(call["retain"]) == encoded
    refused = [
        encode_record(base.tokenizer, replace(q, answer="No comment."), max_length=512)
        for q in questions(4)
    ]
    assert list(call["preferred"]) == refused


@pytest.mark.parametrize(
    ("objective", "files", "says"),
    [
        ("grad_diff", {}, "retain_data: the objective has a retain term"),
        ("npo", {"retain_data": "x.jsonl"}, "retain_data: its objective has no retain term"),
        ("npo", {"refusals": "x.txt"}, "refusals: its objective prefers no answer"),
        ("dpo", {"refusals": "/gone.txt"}, "file of refusals /gone.txt does not exist"),
    ],
)
def test_files_that_do_not_fit_the_objective_are_refused_on_the_node(
    objective: str, files: dict[str, str], says: str, tmp_path: Path
) -> None:
    chosen = instructions(forget=TrainingSettings(objective={"name": objective}, epochs=1))
    with pytest.raises(InputError) as raised:
        run_client_job(pocket_model(), replace(identity(tmp_path), **files), chosen)  # type: ignore[arg-type]
    assert "forget client 'town-0' (towns)" in str(raised.value)
    assert says in str(raised.value)
