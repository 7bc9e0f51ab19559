"""Pads take no part, in values and in gradients; hidden states are those of the block named."""

import pytest
import torch

from fedunlearn.data.encoding import Example, collate, encode_record
from fedunlearn.objectives import RMU, RetainNLL
from fedunlearn.objectives.likelihood import sequence_log_probs
from fedunlearn.seeding import generator
from fedunlearn.training.forward import aligned_logits, decoder_block, objective_inputs
from tests.world import pocket_model, questions

BASE = pocket_model()
NAME = "model.layers.0.mlp.down_proj.weight"
SHORT = encode_record(BASE.tokenizer, questions()[0], max_length=256)
LONG = Example(SHORT.input_ids * 2, SHORT.labels * 2)  # pads the short one to twice its length


def gradient(rows: list[Example], *, pad_id: int) -> tuple[float, torch.Tensor]:
    """Log p of the first row, and its gradient."""
    weight = BASE.model.get_parameter(NAME).requires_grad_()
    total = sequence_log_probs(*aligned_logits(BASE.model, collate(rows, pad_id=pad_id)))[0]
    (found,) = torch.autograd.grad(total, weight)
    weight.requires_grad_(False)
    return total.item(), found


@pytest.mark.parametrize("pad_id", [0, 1, 7])
def test_padding_to_twice_the_length_changes_neither_loss_nor_gradient(pad_id: int) -> None:
    alone, padded = gradient([SHORT], pad_id=0), gradient([SHORT, LONG], pad_id=pad_id)
    assert padded[0] == pytest.approx(alone[0], rel=1e-5)
    torch.testing.assert_close(padded[1], alone[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("layer", [0, 1])
def test_hidden_states_are_the_output_of_the_block_and_pads_do_not_count(layer: int) -> None:
    rmu = RMU(layer=layer, steering=2.0).bind(generator(0), 32)
    alone = objective_inputs(BASE.model, collate([SHORT], pad_id=0), rmu)
    ids = torch.tensor([SHORT.input_ids])
    captured = dict[int, torch.Tensor]()
    handle = BASE.model.model.layers[layer].register_forward_hook(
        lambda _module, _inputs, output: captured.update({0: output})
    )
    BASE.model(input_ids=ids)
    handle.remove()
    torch.testing.assert_close(alone.hidden, captured[0])
    padded = objective_inputs(BASE.model, collate([SHORT, LONG], pad_id=0), rmu)
    assert padded.hidden is not None
    assert padded.token_mask is not None
    length = len(SHORT.input_ids)
    assert padded.token_mask[0].tolist() == [True] * length + [False] * length
    torch.testing.assert_close(padded.hidden[0, :length], alone.hidden[0], rtol=1e-4, atol=1e-5)  # type: ignore[index]


def test_hidden_states_are_not_gathered_unless_asked_for() -> None:
    plain = objective_inputs(BASE.model, collate([SHORT], pad_id=0), RetainNLL())
    assert plain.hidden is None
    assert not any(module._forward_hooks for module in BASE.model.modules())


def test_a_block_is_found_by_its_name_or_said_to_be_missing() -> None:
    assert decoder_block(BASE.model, 1) is BASE.model.model.layers[1]
    with pytest.raises(ValueError, match="transformer block 7: 0 modules"):
        decoder_block(BASE.model, 7)
