import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedunlearn.errors import InputError
from fedunlearn.models.plain_lora import read_lora

PLAIN: dict[str, Any] = {"peft_type": "LORA", "r": 4, "lora_alpha": 8}
MODULE = "model.layers.5.mlp.down_proj"


def test_scaling_plain_and_rslora() -> None:
    assert read_lora(PLAIN).scaling_of(MODULE) == 2.0
    assert read_lora({**PLAIN, "use_rslora": True}).scaling_of(MODULE) == 4.0


@pytest.mark.parametrize(
    ("pattern", "rank"),
    [
        ({"down_proj": 2}, 2),
        ({"own_proj": 2}, 4),
        ({"down": 2}, 4),
        ({"layers.5.mlp.down_proj": 2}, 2),
        ({"layers.15.mlp.down_proj": 2}, 4),
        ({"^model.layers.5.mlp.down_proj": 2}, 2),
        ({r"layers\.[56]\.mlp\.(up|down)_proj": 2}, 2),
        ({"down_proj": 2, "mlp.down_proj": 3}, 2),
        ({"mlp.down_proj": 3, "down_proj": 2}, 3),
        ({}, 4),
        (None, 4),
    ],
)
def test_patterns_resolve_as_in_peft(pattern: dict[str, int] | None, rank: int) -> None:
    lora = read_lora({**PLAIN, "rank_pattern": pattern, "alpha_pattern": {"mlp.down_proj": 6}})
    assert lora.rank_of(MODULE) == rank
    assert lora.scaling_of(MODULE) == 6 / rank
    assert lora.rank_of("model.layers.5.mlp.up_proj_b") == 4


@given(st.sampled_from(["down_proj", "mlp", "5.mlp.down_proj", "layers", ".*", "d.*", "proj"]))
def test_pattern_agrees_with_peft(pattern: str) -> None:
    from peft.utils.other import get_pattern_key

    theirs = get_pattern_key([pattern], MODULE) == pattern
    assert (read_lora({**PLAIN, "rank_pattern": {pattern: 9}}).rank_of(MODULE) == 9) == theirs


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"use_dora": True}, "'use_dora' = True"),
        ({"bias": "all"}, "bias='all'"),
        ({"lora_bias": True}, "'lora_bias'"),
        ({"modules_to_save": ["lm_head"]}, "'modules_to_save'"),
        ({"trainable_token_indices": [1]}, "'trainable_token_indices'"),
        ({"layer_replication": [[0, 1]]}, "'layer_replication'"),
        ({"target_parameters": ["x"]}, "'target_parameters'"),
        ({"alora_invocation_tokens": [1]}, "'alora_invocation_tokens'"),
        ({"use_qalora": True}, "'use_qalora'"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa'"),
        ({"init_lora_weights": "olora"}, "init_lora_weights='olora'"),
        ({"some_future_feature": 3}, "'some_future_feature' = 3"),
        ({"peft_type": "IA3"}, "peft_type 'IA3'"),
        ({"peft_type": None}, "peft_type None"),
        ({"r": 0}, "r 0"),
        ({"r": "4"}, "r '4'"),
        ({"r": True}, "r True"),
        ({"r": None}, "r None"),
        ({"lora_alpha": "8"}, "lora_alpha '8'"),
        ({"lora_alpha": float("nan")}, "lora_alpha nan"),
        ({"lora_alpha": 10**400}, "lora_alpha 1000"),
        ({"use_rslora": "yes"}, "use_rslora 'yes'"),
        ({"fan_in_fan_out": 1}, "fan_in_fan_out 1"),
        ({"rank_pattern": [1]}, "rank_pattern"),
        ({"rank_pattern": {"down_proj": -1}}, r"rank_pattern['down_proj'] -1"),
        ({"alpha_pattern": {"down_proj": None}}, r"alpha_pattern['down_proj'] None"),
        ({"rank_pattern": {"(": 1}}, "no regular expression"),
    ],
)
def test_what_cannot_be_merged_is_refused_by_name(setting: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        read_lora({**PLAIN, **setting})


def test_features_switched_off_are_no_obstacle() -> None:
    read_lora({**PLAIN, "use_dora": False, "modules_to_save": None, "some_future_feature": []})
