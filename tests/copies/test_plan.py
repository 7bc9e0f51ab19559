"""What is refused by name, the blocks, the ties, and the table of families in the docs."""

import re
from pathlib import Path

import pytest
import transformers as hf

from fedunlearn.copies import plan_copies
from fedunlearn.copies.families import FAMILIES
from fedunlearn.errors import InputError
from tests.copies.models import CONFIGS, HEADS, TIED, plan_of, shapes_of, shared_model

DOC = (Path(__file__).parents[2] / "docs" / "MPU.md").read_text(encoding="utf-8")


def test_blocks_are_layers_embeddings_final_norm_and_head() -> None:
    plan = plan_of(shared_model("llama"))
    assert list(plan.blocks) == ["embeddings", "layer 0", "layer 1", "final norm", "head"]
    assert plan.blocks["final norm"] == ["model.norm.weight"]
    assert all(".layers.1." in name for name in plan.blocks["layer 1"])
    assert sum(map(len, plan.blocks.values())) == len(plan.shapes)
    assert plan_of(shared_model("gpt2")).blocks["embeddings"] == [
        "transformer.wte.weight",
        "transformer.wpe.weight",
    ]


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_tied_weights_come_once(name: str) -> None:
    model = shared_model(name)
    plan = plan_of(model)
    assert plan.shapes.keys() == dict(model.named_parameters()).keys()
    assert bool(plan.tied) == (name in TIED)
    assert plan == plan_copies(model.config, shapes_of(dict(model.named_parameters())))


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (hf.MixtralConfig(), "mixtral"),
        (hf.BloomConfig(), "bloom"),
        (hf.FalconConfig(), "falcon"),
        (hf.CohereConfig(), "cohere"),
        (hf.GPTJConfig(), "gptj"),
        (hf.OPTConfig(), "opt"),
    ],
)
def test_other_architectures_are_refused_by_name(config: object, name: str) -> None:
    with pytest.raises(InputError, match=f"'{name}' are not supported.*supported: gemma2, .*qwen3"):
        plan_copies(config, {})


def test_what_the_table_does_not_know_is_refused_by_name() -> None:
    model = shared_model("llama")
    shapes = shapes_of(model.state_dict())
    with pytest.raises(InputError, match=r"layers\.0\.self_attn\.sinks"):
        plan_copies(model.config, {**shapes, "model.layers.0.self_attn.sinks": (6,)})
    with pytest.raises(InputError, match=r"'score\.weight'"):
        plan_copies(model.config, {**shapes, "score.weight": (2, 48)})
    with pytest.raises(InputError, match=r"q_proj.*\(56, 48\) does not fit.*axis 0.*48 places"):
        plan_copies(model.config, {**shapes, "model.layers.0.self_attn.q_proj.weight": (56, 48)})
    with pytest.raises(InputError, match=r"layer 0 has FFNs of \[40, 42\] channels"):
        plan_copies(model.config, {**shapes, "model.layers.0.mlp.down_proj.weight": (48, 42)})


def test_a_part_of_a_model_is_refused() -> None:
    model = shared_model("llama")
    shapes = shapes_of(model.state_dict())
    part = {name: shape for name, shape in shapes.items() if "layers.1.self_attn.k_" not in name}
    with pytest.raises(InputError, match="layer 1 of the weights lacks parameters for k"):
        plan_copies(model.config, part)


def test_features_that_change_the_computation_are_refused() -> None:
    crossed = hf.GPT2Config(n_layer=1, n_embd=8, n_head=2, add_cross_attention=True)
    with pytest.raises(InputError, match="'gpt2' with add_cross_attention=True"):
        plan_copies(crossed, {})
    partial = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    with pytest.raises(InputError, match=r"'llama' are not supported: partial_rotary_factor 0\.5"):
        plan_copies(hf.LlamaConfig(rope_parameters=partial), {})


def test_notes_say_what_does_not_hold() -> None:
    assert plan_of(shared_model("llama")).notes == ()
    (note,) = plan_of(shared_model("qwen3")).notes
    assert "not turned" in note
    assert "norm of its own" in plan_of(shared_model("stablelm-norm")).notes[1]


def test_the_docs_name_every_family_with_what_holds_for_it() -> None:
    table = DOC.partition("## Families")[2].partition("\n## ")[0]
    rows = dict(
        re.findall(r"^\| `(\w+)` \| [^|`]+ \| (.+) \|$", table.partition("|---")[2], re.MULTILINE)
    )
    assert rows.keys() == FAMILIES.keys()
    names = {FAMILIES_OF[name]: name for name in FAMILIES_OF}
    for family, row in rows.items():
        plan = plan_copies(*_example(names[family]))
        turned, rotary, fused = (cell.strip() for cell in row.split("|"))
        assert (turned == "no") == (not plan.heads.turn)
        expected = {0: "none", plan.heads.width: "all"}.get(plan.heads.rotary, "part")
        assert rotary in (expected, "any") or (family == "gemma3_text" and not plan.heads.turn)
        assert (fused == "no") == (not any(len(p.actions) > 1 for p in plan.parameters.values()))


FAMILIES_OF = {
    name: make(HEADS["4/4"]).model_type
    for name, make in CONFIGS.items()
    if name not in ("smollm", "stablelm-norm", "phi3-partial")
}


def _example(name: str) -> tuple[object, dict[str, tuple[int, ...]]]:
    model = shared_model(name, "4/4")
    return model.config, shapes_of(model.state_dict())
