"""The server's work at the size of the paper's WMDP runs: time, ratio, floor and peak memory.

``python benchmarks/server_merge.py FOLDER [--tensors 1] [--rows 4096] [--columns 14336]``

Six forget clients in two domains and one retain client, rank 16, Fisher in bfloat16; the paper's
runs adapt three tensors of 4096 x 14336. The same files are merged by fedunlearn and by a
straightforward PyTorch program (dense products, ``topk``, ``where``), in one run, after one
reading that puts the files into the page cache. The floor is every byte read once and written
once at the copy bandwidth measured beside them. Machines are noisy: read the ratio.
"""

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedunlearn.aggregation import MergeSettings, RelativeEpsilon, merge_to
from fedunlearn.seeding import generator
from fedunlearn.summary import (
    ClientSummary,
    SummaryMeta,
    layout_digest,
    open_summaries,
    save_summary,
)

T = TypeVar("T")
RANK, ALPHA_LORA, ALPHA, EPS0, GAMMA = 16, 32, 0.1, 1e-8, 1.0
CLIENTS = [(f"bio-{i}", "forget", "bio") for i in range(3)]
CLIENTS += [(f"cyber-{i}", "forget", "cyber") for i in range(3)]
CLIENTS += [("mmlu", "retain", "mmlu")]


def main() -> None:
    """Write the summaries, time both programs, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tensors", type=int, default=1)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--columns", type=int, default=14336)
    chosen = parser.parse_args()
    summaries = chosen.folder / "summaries"
    if not summaries.exists():
        for client in CLIENTS:
            save_summary(make_summary(client, chosen), summaries / client[0])
    num_bytes = sum(path.stat().st_size for path in summaries.rglob("*.safetensors"))
    num_bytes += 4 * chosen.tensors * chosen.rows * chosen.columns
    bandwidth = copy_bandwidth()
    before = peak_memory()
    _, first = timed(lambda: ours(summaries, chosen.folder / "ours", projected=False))
    peak = peak_memory() - before
    merged, plain = timed(lambda: ours(summaries, chosen.folder / "ours", projected=False))
    _, projected = timed(lambda: ours(summaries, chosen.folder / "ours", projected=True))
    reference, slow = timed(lambda: straightforward(summaries, chosen.folder / "reference"))
    worst = max(float((merged[name] - reference[name]).abs().max()) for name in reference)
    floor = num_bytes / bandwidth
    print(f"{chosen.tensors} x {chosen.rows} x {chosen.columns}, {torch.get_num_threads()} threads")
    print(f"files read and written       {num_bytes / 1e9:8.2f} GB")
    print(f"floor at {bandwidth / 1e9:5.1f} GB/s copied   {floor:8.2f} s")
    print(f"merge, first                 {first:8.2f} s")
    print(f"merge                        {plain:8.2f} s   {plain / floor:5.1f} x the floor")
    print(f"merge and project            {projected:8.2f} s")
    print(f"straightforward PyTorch      {slow:8.2f} s   {slow / plain:5.1f} x the merge")
    print(f"largest difference           {worst:8.1e}")
    print(f"peak memory of the merge     {peak / 2**30:8.2f} GiB")


def make_summary(client: tuple[str, str, str], chosen: argparse.Namespace) -> ClientSummary:
    """One client's upload, random, with the row and column structure that Fishers have."""
    client_id, role, domain = client
    adapter: dict[str, Tensor] = {}
    fisher: dict[str, Tensor] = {}
    for layer in range(5, 5 + chosen.tensors):
        module = f"model.layers.{layer}.mlp.down_proj"
        draw = generator(0, client_id, layer)
        adapter[f"base_model.model.{module}.lora_A.weight"] = (
            torch.randn(RANK, chosen.columns, generator=draw) * 0.01
        )
        adapter[f"base_model.model.{module}.lora_B.weight"] = (
            torch.randn(chosen.rows, RANK, generator=draw) * 0.01
        )
        entries = torch.rand(chosen.rows, chosen.columns, generator=draw) ** 4
        entries *= torch.randn(chosen.rows, 1, generator=draw).exp()
        entries *= torch.randn(1, chosen.columns, generator=draw).exp() * 1e-6
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


def ours(summaries: Path, out: Path, *, projected: bool) -> dict[str, Tensor]:
    """Merge with fedunlearn, from files to files."""
    epsilon = RelativeEpsilon(relative=0.3) if projected else float("inf")
    merge = MergeSettings(gamma=GAMMA, alpha=ALPHA, epsilon=epsilon)
    merge_to(out, open_summaries(summaries), merge)
    return load_file(out / "delta.safetensors")


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


def peak_memory() -> int:
    """Largest resident size so far, bytes; mapped files count while they are resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
