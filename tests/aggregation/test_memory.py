"""The server holds one weight at a time, however many there are."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedunlearn.seeding import generator
from fedunlearn.summary import ClientSummary, SummaryMeta, layout_digest, save_summary

ROWS, COLUMNS, CLIENTS = 512, 2048, 8
SCRIPT = """
import sys, threading
from pathlib import Path
from fedunlearn.aggregation import MergeSettings, RelativeEpsilon, merge_to
from fedunlearn.summary import open_summaries

def anonymous():
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))

merge = MergeSettings(gamma=1.5, epsilon=RelativeEpsilon(relative=0.3))
warm, large, out = map(Path, sys.argv[1:])
merge_to(out, open_summaries(warm), merge)
before, peak, done = anonymous(), [0], threading.Event()

def watch():
    while not done.wait(0.001):
        peak.append(anonymous() - before)

threading.Thread(target=watch, daemon=True).start()
merge_to(out, open_summaries(large), merge)
done.set()
print(max(peak))
"""


def write_round(folder: Path, tensors: int) -> Path:
    """Six forget clients in two domains and two retain clients."""
    for number in range(CLIENTS):
        draw = generator(0, "client", number)
        adapter, fisher = {}, {}
        for layer in range(tensors):
            module = f"model.layers.{layer}.mlp.down_proj"
            key = f"base_model.model.{module}"
            adapter[f"{key}.lora_A.weight"] = torch.randn(4, COLUMNS, generator=draw)
            adapter[f"{key}.lora_B.weight"] = torch.randn(ROWS, 4, generator=draw)
            entries = torch.rand(ROWS, COLUMNS, generator=draw)
            fisher[f"{module}.weight"] = entries.square_().to(torch.bfloat16)
        meta = SummaryMeta(
            client_id=f"client-{number}",
            role="retain" if number >= 6 else "forget",
            domain="kept" if number >= 6 else f"domain-{number % 2}",
            objective="npo",
            num_examples=1,
            base_model="random",
            base_model_sha256="0" * 64,
            layout_digest=layout_digest(fisher),
        )
        config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none"}
        save_summary(ClientSummary(meta, config, adapter, fisher), folder / meta.client_id)
    return folder


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_twenty_weights_of_eight_clients_are_never_in_memory_together(tmp_path: Path) -> None:
    two, twenty = (write_round(tmp_path / str(n), n) for n in (2, 20))
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(two), str(twenty), str(tmp_path / "merged")],
        capture_output=True,
        text=True,
        check=True,
    )
    weight = 4 * ROWS * COLUMNS
    assert 1024 * int(ran.stdout) < 16 * weight  # the update of the other weights alone is 18
