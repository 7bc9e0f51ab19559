"""MPU's copies: time of publishing and undoing one, against the memory bandwidth, and memory.

``python benchmarks/mpu_copies.py [--shape smollm2-135m | 1b] [--m 2] [--repeat 3]``

Random float32 weights of the shape named (``1b``: that of Llama 3.2 1B; 15 GB with the copy and the
accumulator), and a reference that differs by 1 % and is made when it is read. The floor is the
paper's count (eq. 17): nine times the weights' bytes a copy, at the bandwidth of a copy in memory,
counted as the bytes that are copied. Everything is timed on as many threads as PyTorch may use.
Where other programs want the cores too, time on the clock says little: the processor's time is
printed beside it, of the copy in memory as well. Memory is what is resident beyond the weights.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from memory import peak_memory
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
COPIED = 1 << 30
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
    factor = 9 * num_bytes / COPIED
    floor = copying().times(factor)
    print(f"{chosen.shape}: {entries:,} parameters, {torch.get_num_threads()} threads")
    print(
        f"floor, a copy                 {floor}  at {COPIED / floor.clock * factor / 1e9:.1f} GB/s"
    )

    settings = CopySettings(m=chosen.m)
    secret = RoundSecret.from_seed(0)
    factory, measuring = timed(
        lambda: CopyFactory(plan, settings, weights, reference, secret, server_round=1)
    )
    print(f"noise levels, once a round    {measuring}")
    with peak_memory() as peak:
        publishing, undoing = one_round(factory, plan, settings)
    print(f"peak memory of a round        {peak() / num_bytes:8.2f} x the weights")
    for _ in range(chosen.repeat - 1):
        floor = floor.least(copying().times(factor))
        again = one_round(factory, plan, settings)
        publishing, undoing = publishing.least(again[0]), undoing.least(again[1])
    both = publishing.plus(undoing)
    print(f"publish a copy                {publishing}")
    print(f"undo and accumulate it        {undoing}")
    print(f"both                          {both}")
    ratios = f"{both.clock / floor.clock:8.2f}      {both.cpu / floor.cpu:8.2f}"
    print(f"both, over the floor          {ratios}")


@dataclass(frozen=True)
class Seconds:
    """On the clock, and of the processor in all threads."""

    clock: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.clock:8.2f} s    {self.cpu:8.2f} s of the processor"

    def times(self, factor: float) -> "Seconds":
        return Seconds(self.clock * factor, self.cpu * factor)

    def plus(self, other: "Seconds") -> "Seconds":
        return Seconds(self.clock + other.clock, self.cpu + other.cpu)

    def least(self, other: "Seconds") -> "Seconds":
        return Seconds(min(self.clock, other.clock), min(self.cpu, other.cpu))


def one_round(
    factory: CopyFactory, plan: CopyPlan, settings: CopySettings
) -> tuple[Seconds, Seconds]:
    """Mean times of a copy; what is published serves as the displacement."""
    mean = HarmonicMean(settings.scales, plan.shapes)
    publishing = undoing = Seconds(0.0, 0.0)
    for copy in range(1, settings.m + 1):
        published, seconds = timed(partial(lambda one: dict(factory.publish(one)), copy))
        publishing = publishing.plus(seconds)
        undone = factory.undo(copy, consumed(published))
        undoing = undoing.plus(timed(partial(mean.add, copy, undone))[1])
    mean.result()
    return publishing.times(1 / settings.m), undoing.times(1 / settings.m)


def consumed(tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Hand out and forget, as a reply is read from its files."""
    for name in list(tensors):
        yield name, tensors.pop(name)


class Nearby(Mapping[str, Tensor]):
    """A reference model that takes no memory."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = weights

    def __getitem__(self, name: str) -> Tensor:
        return self._weights[name] * 0.99

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


def random_weights(shape: dict[str, Any]) -> tuple[CopyPlan, dict[str, Tensor], Nearby]:
    """A plan, weights and a reference."""
    config = LlamaConfig(**shape)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shapes = {name: tuple(one.shape) for name, one in model.named_parameters()}
    draw = torch.Generator().manual_seed(0)
    weights = {
        name: torch.empty(size).normal_(0, 0.02, generator=draw) for name, size in shapes.items()
    }
    return plan_copies(config, shapes), weights, Nearby(weights)


def timed(work: Callable[[], T]) -> tuple[T, Seconds]:
    """Run once; return the result and the time it took."""
    start, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, Seconds(time.perf_counter() - start, time.process_time() - cpu)


def copying() -> Seconds:
    """Time of a plain copy of 1 GiB into memory that is there already, the best of three."""
    source = torch.ones(COPIED // 4)
    target = torch.ones_like(source)
    best = timed(lambda: target.copy_(source))[1]
    for _ in range(2):
        best = best.least(timed(lambda: target.copy_(source))[1])
    return best


if __name__ == "__main__":
    main()
