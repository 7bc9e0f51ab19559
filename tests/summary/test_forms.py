"""What an upload may look like, and how large it will be, before it comes."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedunlearn.models.adapted import adapted_shapes
from fedunlearn.models.loading import load_base
from fedunlearn.models.plain_lora import read_lora
from fedunlearn.summary import summary_form, to_wire, upload_bytes, wire_bytes
from fedunlearn.training.client_job import run_client_job
from tests.strategies.federation import federation


@pytest.mark.parametrize("kept", [0.1, 1.0])
def test_what_a_client_sends_has_the_form_and_the_size_that_were_foreseen(
    kept: float, tmp_path: Path
) -> None:
    config = federation(tmp_path)
    told = replace(config.instructions(), fisher_kept=kept)
    summary = run_client_job(load_base(config.model), config.clients[0], told)
    weights = adapted_shapes(config.model, config.lora)
    assert weights == summary.shapes()
    lora = read_lora({"peft_type": "LORA", **config.lora.asked()})
    form = summary_form(weights, lora)
    for name, array in to_wire(summary)[0].items():
        form.admit(name, array.shape)
    foreseen, sent = upload_bytes(weights, lora, kept=kept), wire_bytes(summary)
    assert foreseen == pytest.approx(sent, rel=0.0 if kept == 1.0 else 0.05)
