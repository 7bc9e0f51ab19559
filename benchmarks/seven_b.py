"""A round at the size of a 7B model: training, Fisher pass, upload and merge; time and peak memory.

``python benchmarks/seven_b.py FOLDER`` on a GPU; on a CPU, the same steps with a small shape:
``python benchmarks/seven_b.py FOLDER --layers 2 --hidden 256 --inner 768 --heads 4 --kv-heads 2
--adapted-layers 0 1 --quantization none``

A model with random weights, by default of Mistral-7B's shape, is written below FOLDER (14.5 GB in
bfloat16) and then used as anybody's: loaded, trained on by two forget clients and one retain client
(RMU and language modelling, as in the paper's WMDP runs) on a 4-bit copy, loaded again for the
Fisher pass, uploaded and merged. Weights do not matter to what it takes, and nothing is learned.
Memory is PyTorch's on CUDA, and the process's resident set on a CPU; a mapped file counts there.
"""

import argparse
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from fedunlearn.aggregation import MergeSettings, RelativeEpsilon, merge_to
from fedunlearn.data.records import write_jsonl
from fedunlearn.models.adapters import LoraSettings
from fedunlearn.models.loading import LoadedModel, ModelSettings, load_base, resolve_device
from fedunlearn.models.tiny import train_tokenizer
from fedunlearn.summary import ClientSummary, from_wire, save_summary, to_wire, wire_bytes
from fedunlearn.summary.files import open_summary
from fedunlearn.training.client_job import run_client_job
from fedunlearn.training.client_settings import ClientIdentity, ClientInstructions
from fedunlearn.training.fisher_pass import FisherSettings
from fedunlearn.training.footprint import footprint
from fedunlearn.training.loop import TrainingSettings

CLIENTS = (("bio", "forget"), ("cyber", "forget"), ("general", "retain"))
VOCABULARY = 512


class Table:
    """Prints a row a stage, and keeps them."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[float, int]] = {}
        print(f"{'stage':<28}{'seconds':>10}{'peak MiB':>11}")

    def add(self, stage: str, seconds: float, peak: int) -> None:
        self.rows[stage] = (seconds, peak)
        print(f"{stage:<28}{seconds:>10.2f}{peak / 2**20:>11.0f}", flush=True)

    @contextmanager
    def stage(self, name: str, device: torch.device) -> Iterator[None]:
        with footprint(device) as taken:
            yield
        self.add(name, taken.seconds, taken.peak_memory_bytes)


def main(arguments: Sequence[str] | None = None) -> dict[str, tuple[float, int]]:
    """Do the round; return stage to seconds and peak bytes."""
    chosen = parse(arguments)
    quantization = None if chosen.quantization == "none" else chosen.quantization
    device, table = resolve_device(chosen.device), Table()
    with table.stage("write the random model", device):
        tokenizer = write_model(chosen, chosen.folder / "model", device)
        write_data(chosen, chosen.folder)
    settings = ModelSettings(
        path=str(chosen.folder / "model"),
        dtype=chosen.dtype,
        device=chosen.device,
        quantization=quantization,
    )
    with table.stage("load the model", device):
        base = load_base(settings)
    size = sum(weight.numel() for weight in base.model.parameters())
    print(f"{size / 1e9:.3f} billion parameters, {device.type}, {len(tokenizer)} tokens known")
    for name, role in CLIENTS:
        one_client(chosen, base, name, role, table)
    summaries = [received(chosen.folder, name) for name, _ in CLIENTS]
    print(f"upload of a client: {wire_bytes(summaries[0]) / 2**20:.1f} MiB")
    del base
    with table.stage("merge and project", torch.device("cpu")):
        merge = MergeSettings(method="firm", epsilon=RelativeEpsilon(relative=0.3))
        merge_to(chosen.folder / "merged", summaries, merge)
    return table.rows


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    for name, default in (
        ("layers", 32),
        ("hidden", 4096),
        ("inner", 14336),
        ("heads", 32),
        ("kv-heads", 8),
        ("vocabulary", 32000),
        ("examples", 32),
        ("tokens", 512),
        ("batch-size", 4),
        ("fisher-sequences", 20),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--adapted-layers", type=int, nargs="+", default=[5, 6, 7])
    parser.add_argument("--target-modules", nargs="+", default=["down_proj"])
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--quantization", choices=["nf4", "none"], default="nf4")
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--device", default="auto")
    return parser.parse_args(arguments)


def write_model(
    chosen: argparse.Namespace, folder: Path, device: torch.device
) -> PreTrainedTokenizerFast:
    """Save a model with random weights, made on ``device``, and a small tokenizer."""
    tokenizer = train_tokenizer(["a random model has nothing to say"], vocabulary=VOCABULARY)
    config = LlamaConfig(
        vocab_size=chosen.vocabulary,
        hidden_size=chosen.hidden,
        intermediate_size=chosen.inner,
        num_hidden_layers=chosen.layers,
        num_attention_heads=chosen.heads,
        num_key_value_heads=chosen.kv_heads,
        max_position_embeddings=4096,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, chosen.dtype))
    try:
        with device:
            LlamaForCausalLM(config).save_pretrained(folder)
    finally:
        torch.set_default_dtype(before)
    tokenizer.save_pretrained(folder)
    return tokenizer


def write_data(chosen: argparse.Namespace, folder: Path) -> None:
    """Write each client's passages, a little longer than the sequences they are cut to."""
    for name, _ in CLIENTS:
        rows: list[dict[str, object]] = [
            {"text": " ".join(f"{name}{k * n}" for k in range(chosen.tokens))}
            for n in range(1, chosen.examples + 1)
        ]
        write_jsonl(folder / f"{name}.jsonl", rows)


def one_client(
    chosen: argparse.Namespace, base: LoadedModel, name: str, role: str, table: Table
) -> None:
    """Train and estimate; keep what would be sent."""
    brief = {
        "epochs": 1,
        "batch_size": chosen.batch_size,
        "max_length": chosen.tokens,
        "optimizer": chosen.optimizer,
        "gradient_checkpointing": chosen.gradient_checkpointing,
    }
    layers = tuple(chosen.adapted_layers)
    rmu = {"name": "rmu", "layer": max(layers), "share": "domain"}
    told = ClientInstructions(
        seed=0,
        lora=LoraSettings(target_modules=tuple(chosen.target_modules), layers=layers),
        forget=TrainingSettings(objective=rmu, **brief),
        retain=TrainingSettings(objective={"name": "retain_nll"}, **brief),
        fisher=FisherSettings(
            num_sequences=chosen.fisher_sequences,
            max_length=chosen.tokens,
            batch_size=chosen.batch_size,
        ),
        fisher_kept=0.1,
    )
    data = str(chosen.folder / f"{name}.jsonl")
    who = ClientIdentity(id=name, role=role, domain=name, data=data)  # type: ignore[arg-type]
    summary = run_client_job(base, who, told)
    facts, fisher = summary.meta.training, summary.meta.fisher
    stage = f"{name}: train {facts['steps']} steps"
    table.add(stage, facts["seconds"], facts["peak_memory_bytes"])
    table.add(f"{name}: Fisher pass", fisher["seconds"], fisher["peak_memory_bytes"])
    shutil.rmtree(chosen.folder / "summaries" / name, ignore_errors=True)
    with table.stage(f"{name}: encode and decode", torch.device("cpu")):
        save_summary(from_wire(*to_wire(summary)), chosen.folder / "summaries" / name)


def received(folder: Path, name: str) -> ClientSummary:
    """The summary as the server has it: on disk."""
    return open_summary(folder / "summaries" / name)


if __name__ == "__main__":
    main()
