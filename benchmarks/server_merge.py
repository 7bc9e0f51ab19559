"""The server's work at the size of the paper's WMDP runs: time, ratio, floor, memory, upload.

``python benchmarks/server_merge.py FOLDER [--tensors 3] [--rows 4096] [--columns 14336]``
``python benchmarks/server_merge.py FOLDER --layer`` for one layer's seven projections of a 7B
model, and what its 32 layers come to.

Six forget clients in two domains and one retain client, rank 16, Fisher in bfloat16; the paper's
runs adapt three tensors of 4096 x 14336. The same files are merged by fedunlearn and by a
straightforward PyTorch program (dense products, ``topk``, ``where``), in one run, after one
reading that puts the files into the page cache. The floor is every byte read once and written
once at the copy bandwidth measured beside them. Memory is what is resident beyond mapped files.
The projection is timed apart, with three of the clients as retain clients. Machines are noisy:
read the ratios.
"""

import argparse
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from memory import peak_memory
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedunlearn.aggregation import MergeSettings, RelativeEpsilon, merge_to
from fedunlearn.aggregation.finishing import finish_tensor
from fedunlearn.aggregation.raw import merge_tensor
from fedunlearn.aggregation.tensor_source import TensorSource
from fedunlearn.merging import Firm
from fedunlearn.seeding import generator
from fedunlearn.summary import (
    ClientSummary,
    SummaryMeta,
    layout_digest,
    open_summaries,
    save_summary,
    wire_bytes,
)
from fedunlearn.tensors.fisher import keep_largest

T = TypeVar("T")
RANK, ALPHA_LORA, ALPHA, EPS0, GAMMA = 16, 32, 0.1, 1e-8, 1.0
CLIENTS = [(f"bio-{i}", "forget", "bio") for i in range(3)]
CLIENTS += [(f"cyber-{i}", "forget", "cyber") for i in range(3)]
CLIENTS += [("mmlu", "retain", "mmlu")]
LAYER = {
    f"model.layers.0.{module}": shape
    for module, shape in {
        "self_attn.q_proj": (4096, 4096),
        "self_attn.k_proj": (1024, 4096),
        "self_attn.v_proj": (1024, 4096),
        "self_attn.o_proj": (4096, 4096),
        "mlp.gate_proj": (14336, 4096),
        "mlp.up_proj": (14336, 4096),
        "mlp.down_proj": (4096, 14336),
    }.items()
}
ALSO_RETAIN = ("bio-2", "cyber-2")
"""Taken for retain clients where the projection onto three budgets is timed."""


def main() -> None:
    """Write the summaries, time both programs, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tensors", type=int, default=3)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--columns", type=int, default=14336)
    parser.add_argument("--layer", action="store_true", help="a layer of Mistral 7B instead")
    parser.add_argument("--method", default="firm", help="of the merge; the reference is FIRM's")
    parser.add_argument("--no-reference", action="store_true", help="leave it out")
    chosen = parser.parse_args()
    summaries = chosen.folder / "summaries"
    shapes = LAYER if chosen.layer else down_projections(chosen)
    if not summaries.exists():
        for client in CLIENTS:
            save_summary(make_summary(client, shapes), summaries / client[0])
    entries = sum(rows * columns for rows, columns in shapes.values())
    print(f"{len(shapes)} tensors, {entries:,} entries, {torch.get_num_threads()} threads")
    num_bytes = sum(path.stat().st_size for path in summaries.rglob("*.safetensors"))
    num_bytes += 4 * entries
    bandwidth = copy_bandwidth()
    floor = num_bytes / bandwidth
    print(f"files read and written       {num_bytes / 1e9:8.2f} GB")
    print(f"floor at {bandwidth / 1e9:5.1f} GB/s copied   {floor:8.2f} s")

    ours = chosen.folder / "ours"
    free = MergeSettings(method=chosen.method, gamma=GAMMA, alpha=ALPHA)
    with peak_memory() as peak:
        _, first = timed(lambda: merge_to(ours, open_summaries(summaries), free))
    print(f"merge, first                 {first:8.2f} s")
    _, merging = timed(lambda: merge_to(ours, open_summaries(summaries), free))
    print(f"merge                        {merging:8.2f} s   {merging / floor:5.1f} x the floor")
    print(f"peak memory of the merge     {peak() / 2**30:8.2f} GiB beyond mapped files")
    if chosen.method == "firm" and not chosen.no_reference:
        reference, slow = timed(lambda: straightforward(summaries, chosen.folder / "reference"))
        print(f"straightforward PyTorch      {slow:8.2f} s   {slow / merging:5.1f} x the merge")
        merged = load_file(ours / "delta.safetensors")
        worst = max(float((merged[name] - reference[name]).abs().max()) for name in reference)
        print(f"largest difference           {worst:8.1e}")
        del reference, merged

    seconds, iterations = projection(open_summaries(summaries))
    print(f"projection, m=3, a tensor    {seconds:8.2f} s   {iterations} iterations")
    bound = replace(free, epsilon=RelativeEpsilon(relative=0.3))
    with peak_memory() as peak:
        _, both = timed(lambda: merge_to(ours, open_summaries(summaries), bound))
    print(f"merge, relative budget       {both:8.2f} s   with {peak() / 2**30:.2f} GiB")
    whole, small = upload(open_summaries(summaries)[-1])
    print(f"upload, whole Fisher         {whole / 2**20:8.1f} MiB")
    print(f"upload, not pooled           {small / 2**20:8.1f} MiB")
    share, speed = compression(open_summaries(summaries)[0])
    print(f"zlib of a raw Fisher         {share:8.2f} of its size, at {speed / 1e6:.0f} MB/s")
    if chosen.layer:
        print(f"32 layers, by that           {32 * merging:8.0f} s a merge")
        print(f"                             {32 * small / 2**30:8.2f} GiB an upload, not pooled")


def down_projections(chosen: argparse.Namespace) -> dict[str, tuple[int, int]]:
    """Module to shape of the tensors asked for."""
    layers = range(5, 5 + chosen.tensors)
    shape = chosen.rows, chosen.columns
    return {f"model.layers.{layer}.mlp.down_proj": shape for layer in layers}


def make_summary(
    client: tuple[str, str, str], shapes: Mapping[str, tuple[int, int]]
) -> ClientSummary:
    """One client's upload, random, with the row and column structure that Fishers have."""
    client_id, role, domain = client
    adapter: dict[str, Tensor] = {}
    fisher: dict[str, Tensor] = {}
    for module, (rows, columns) in shapes.items():
        draw = generator(0, client_id, module)
        adapter[f"base_model.model.{module}.lora_A.weight"] = (
            torch.randn(RANK, columns, generator=draw) * 0.01
        )
        adapter[f"base_model.model.{module}.lora_B.weight"] = (
            torch.randn(rows, RANK, generator=draw) * 0.01
        )
        entries = torch.rand(rows, columns, generator=draw) ** 4
        entries *= torch.randn(rows, 1, generator=draw).exp()
        entries *= torch.randn(1, columns, generator=draw).exp() * 1e-6
        fisher[f"{module}.weight"] = entries.to(torch.bfloat16)
    meta = SummaryMeta(
        client_id=client_id,
        role=role,  # type: ignore[arg-type]
        domain=domain,
        objective="rmu" if role == "forget" else "retain_nll",
        num_examples=1,
        base_model="random",
        base_model_sha256="0" * 64,
        layout_digest=layout_digest(fisher),
    )
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA_LORA, "bias": "none"}
    return ClientSummary(meta, config, adapter, fisher)


def straightforward(summaries: Path, out: Path) -> dict[str, Tensor]:
    """Eq. 2-5 as one would write them first: everything dense, everything in memory."""
    clients = open_summaries(summaries)
    delta = {}
    for name in clients[0].weights():
        groups: dict[str, list[ClientSummary]] = {}
        for client in clients:
            groups.setdefault(client.meta.domain, []).append(client)
        terms: dict[str, list[tuple[Tensor, Tensor]]] = {"forget": [], "retain": []}
        for group in groups.values():
            update = torch.stack([client.task_vector(name) for client in group]).mean(0)
            raw = torch.stack([client.fisher[name].float() for client in group]).mean(0)
            scaled = raw / (raw.max() + EPS0)
            threshold = scaled.flatten().topk(int(ALPHA * scaled.numel())).values[-1]
            kept = torch.where(scaled >= threshold, scaled, torch.zeros(()))
            terms[group[0].meta.role].append((kept, update))
        delta[name] = GAMMA * sum(  # type: ignore[assignment]
            sum(fisher * update for fisher, update in term)
            / (sum(fisher for fisher, _ in term) + EPS0)
            for term in terms.values()
        )
    out.mkdir(exist_ok=True)
    save_file(delta, out / "delta.safetensors")
    return delta


def projection(summaries: list[ClientSummary]) -> tuple[float, int]:
    """Seconds and iterations of one tensor's projection onto three budgets, of three runs."""
    recast = [
        replace(one, meta=replace(one.meta, role="retain"))
        if one.meta.client_id in ALSO_RETAIN
        else one
        for one in summaries
    ]
    source = TensorSource(recast, alpha=ALPHA, eps0=EPS0)
    name = source.names[0]
    times = []
    for _ in range(3):
        raw = merge_tensor(source, Firm(), name)
        harms = zip(source.retain_ids, raw.damages, strict=True)
        budgets = {client: 0.3 * harm for client, harm in harms}
        work = partial(
            finish_tensor, name, raw, gamma=GAMMA, budgets=budgets, solver="newton", start={}
        )
        done, seconds = timed(partial(work, owned=True))
        if not done.report.certified:
            raise SystemExit(f"the projection is not certified: {done.report.status}")
        times.append(seconds)
    return min(times), done.report.iterations


def upload(summary: ClientSummary) -> tuple[int, int]:
    """Bytes a client sends with its whole Fisher, and with the entries that a merge uses."""
    fisher = {name: keep_largest(tensor, ALPHA) for name, tensor in summary.fisher.items()}
    return wire_bytes(summary), wire_bytes(replace(summary, fisher=fisher))


def compression(summary: ClientSummary) -> tuple[float, float]:
    """Compressed share and bytes a second of a Fisher, high and low bytes apart, at level 1."""
    bits = next(iter(summary.fisher.values())).view(torch.uint8).reshape(-1, 2)[:8_000_000]
    raw = bits.T.contiguous().numpy().tobytes()
    packed, seconds = timed(lambda: zlib.compress(raw, 1))
    return len(packed) / len(raw), len(raw) / seconds


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Run once; return the result and the seconds it took."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def copy_bandwidth() -> float:
    """Bytes a second of a plain copy of 1 GiB, counted once, the best of three."""
    source = torch.ones(2**28)
    target = torch.empty_like(source)
    return source.nbytes / min(timed(lambda: target.copy_(source))[1] for _ in range(3))


if __name__ == "__main__":
    main()
