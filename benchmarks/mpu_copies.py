"""MPU's copies: time of publishing and undoing one, against the memory bandwidth, and memory.

``python benchmarks/mpu_copies.py [--shape smollm2-135m | 1b] [--m 2] [--repeat 3]``

Random float32 weights of the shape named, and a reference that differs by 1 % (``1b``: 16 layers
of Llama 3.2 1B, tied; 5 GB beside the copy and the accumulator). The floor is the paper's count
(eq. 17): nine times the weights' bytes a copy, at the bandwidth of a copy in memory, counted as
the bytes that are copied. Everything is timed on as many threads as PyTorch may use; memory is
what is resident beyond weights and reference. Machines are noisy: read the ratios.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig

from fedunlearn.copies import (
    CopyFactory,
    CopyPlan,
    CopySettings,
    HarmonicMean,
    RoundSecret,
    plan_copies,
)

T = TypeVar("T")
SHAPES: dict[str, dict[str, Any]] = {
    "smollm2-135m": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
    },
    "1b": {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "tie_word_embeddings": True,
    },
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="smollm2-135m")
    parser.add_argument("--m", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    plan, weights, reference = random_weights(SHAPES[chosen.shape])
    num_bytes = sum(weight.nbytes for weight in weights.values())
    entries = sum(weight.numel() for weight in weights.values())
    bandwidth = copy_bandwidth()
    floor = 9 * num_bytes / bandwidth
    print(f"{chosen.shape}: {entries:,} parameters, {torch.get_num_threads()} threads")
    print(f"floor at {bandwidth / 1e9:5.1f} GB/s copied     {floor:8.2f} s a copy")

    settings = CopySettings(m=chosen.m)
    secret = RoundSecret.from_seed(0)
    factory, measuring = timed(
        lambda: CopyFactory(plan, settings, weights, reference, secret, server_round=1)
    )
    print(f"noise levels, once a round     {measuring:8.2f} s")
    with peak_memory() as peak:
        publishing, undoing = one_round(factory, plan, settings)
    print(f"peak memory of a round         {peak() / num_bytes:8.2f} x the weights")
    for _ in range(chosen.repeat - 1):
        again = one_round(factory, plan, settings)
        publishing, undoing = min(publishing, again[0]), min(undoing, again[1])
    both = publishing + undoing
    print(f"publish a copy                 {publishing:8.2f} s")
    print(f"undo and accumulate it         {undoing:8.2f} s")
    print(f"both                           {both:8.2f} s   {both / floor:5.2f} x the floor")


def one_round(factory: CopyFactory, plan: CopyPlan, settings: CopySettings) -> tuple[float, float]:
    """Mean seconds a copy; what is published serves as the displacement."""
    mean, publishing, undoing = HarmonicMean(settings.scales, plan.shapes), 0.0, 0.0
    for copy in range(1, settings.m + 1):
        published, seconds = timed(partial(lambda one: dict(factory.publish(one)), copy))
        publishing += seconds
        undone = factory.undo(copy, consumed(published))
        undoing += timed(partial(mean.add, copy, undone))[1]
    mean.result()
    return publishing / settings.m, undoing / settings.m


def consumed(tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Hand out and forget, as a reply is read from its files."""
    for name in list(tensors):
        yield name, tensors.pop(name)


def random_weights(shape: dict[str, Any]) -> tuple[CopyPlan, dict[str, Tensor], dict[str, Tensor]]:
    """A plan, weights and a reference."""
    config = LlamaConfig(**shape)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shapes = {name: tuple(one.shape) for name, one in model.named_parameters()}
    draw = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(size, generator=draw) * 0.02 for name, size in shapes.items()}
    reference = {name: weight * 0.99 for name, weight in weights.items()}
    return plan_copies(config, shapes), weights, reference


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


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    """Watch the anonymous resident memory of the block; the growth is known afterwards."""
    before, seen, done = anonymous(), [0], Event()

    def watch() -> None:
        while not done.wait(0.005):
            seen.append(anonymous() - before)

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: max(seen)
    finally:
        done.set()
        watcher.join()


def anonymous() -> int:
    """Resident bytes that are no file's (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("this kernel does not tell anonymous memory from files")


if __name__ == "__main__":
    main()
