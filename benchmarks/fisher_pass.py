"""The Fisher pass against a plain forward and backward pass: ratio, floor and peak memory.

``python benchmarks/fisher_pass.py [--shape small|wide] [--dtype float32|bfloat16] [--repeat 5]``

Both passes see the same batches of a random Llama and make gradients of the same weights; the
plain one lets autograd make them, one of each weight a batch, and drops them. ``small`` adapts
every linear layer of a narrow model, ``wide`` the down projections of two blocks as wide as a 7B
model's. The floor is the plain pass's matrix products at the rate measured beside them. The two
are timed alternately and the ratio is that of their medians. Memory is what a pass adds to the
model and the plain pass's activations: the Fisher pass should add one float32 accumulator a
weight and a bounded block.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from fedunlearn.data.encoding import Example, collate
from fedunlearn.training.fisher_pass import FisherSettings, estimate_fisher
from fedunlearn.training.footprint import footprint
from fedunlearn.training.forward import aligned_logits


@dataclass(frozen=True)
class Shape:
    hidden: int
    inner: int
    layers: int
    heads: int
    sequences: int
    tokens: int
    endings: tuple[str, ...]


SHAPES = {
    "small": Shape(256, 768, 4, 4, 16, 128, ("_proj.weight",)),
    "wide": Shape(4096, 14336, 2, 32, 4, 256, ("down_proj.weight",)),
}


def main() -> None:
    """Build the model, time both passes, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    shape, device = SHAPES[chosen.shape], torch.device(chosen.device)
    model = build(shape, getattr(torch, chosen.dtype), device)
    names = [name for name, _ in model.named_parameters() if name.endswith(shape.endings)]
    ids = torch.randint(512, (shape.sequences, shape.tokens)).tolist()
    examples = [Example(tuple(row), tuple(row)) for row in ids]
    settings = FisherSettings(num_sequences=shape.sequences, batch_size=chosen.batch_size)

    def fisher() -> None:
        estimate_fisher(model, examples, names, chosen=settings)

    def plain() -> None:
        plain_pass(model, examples, names, batch_size=chosen.batch_size)

    plain(), fisher()  # warm
    peaks = [peak(work, device) for work in (plain, fisher)]
    times = [[timed(work, device) for work in (plain, fisher)] for _ in range(chosen.repeat)]
    slow, fast = (statistics.median(column) for column in zip(*times, strict=True))
    weights = sum(model.get_parameter(name).numel() for name in names)
    flops = plain_flops(model, names) * shape.sequences * shape.tokens
    rate = matmul_rate(model.dtype, device, shape)
    print(f"{chosen.shape}, {chosen.dtype}, {device.type}, {torch.get_num_threads()} threads:")
    print(f"{shape.sequences} sequences of {shape.tokens} tokens, {len(names)} weights")
    print(f"plain forward and backward   {slow:8.3f} s")
    print(f"Fisher pass                  {fast:8.3f} s")
    print(f"ratio                        {fast / slow:8.2f}   (target: at most 1.25)")
    print(f"floor                        {flops / rate:8.3f} s  ({flops / 1e9:.0f} GFLOP)")
    print(f"Fisher pass over floor       {fast * rate / flops:8.2f}")
    print(f"peak memory, plain           {peaks[0] / 2**20:8.0f} MiB")
    print(f"peak memory, Fisher          {peaks[1] / 2**20:8.0f} MiB")
    print(f"accumulators                 {4 * weights / 2**20:8.0f} MiB")


def build(shape: Shape, dtype: torch.dtype, device: torch.device) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=max(1, shape.heads // 4),
        max_position_embeddings=1024,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = LlamaForCausalLM(config).to(dtype)
    return model.eval().requires_grad_(False)


def plain_pass(
    model: LlamaForCausalLM, examples: list[Example], names: list[str], *, batch_size: int
) -> None:
    weights = [model.get_parameter(name).requires_grad_() for name in names]
    for start in range(0, len(examples), batch_size):
        batch = collate(examples[start : start + batch_size], pad_id=0).to(model.device)
        logits, labels = aligned_logits(model, batch)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        torch.autograd.grad(loss, weights)
    for weight in weights:
        weight.requires_grad_(False)


def plain_flops(model: LlamaForCausalLM, names: list[str]) -> int:
    """Of the linear layers, a token: forward, gradients at inputs down to the lowest, weights'."""
    linear = [
        (f"{name}.weight", module.weight.numel())
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    ]
    lowest = min(i for i, (name, _) in enumerate(linear) if name in names)
    forward = sum(size for _, size in linear)
    inputs = sum(size for _, size in linear[lowest + 1 :])
    return 2 * (forward + inputs + sum(size for name, size in linear if name in names))


def matmul_rate(dtype: torch.dtype, device: torch.device, shape: Shape) -> float:
    """FLOP/s of the largest layer's product; the best of five."""
    rows = min(4 * shape.tokens, 1024)
    x = torch.randn(rows, shape.hidden, dtype=dtype, device=device)
    weight = torch.randn(shape.hidden, shape.inner, dtype=dtype, device=device)
    best = min(timed(lambda: torch.mm(x, weight), device) for _ in range(5))
    return 2 * rows * shape.hidden * shape.inner / best


def peak(work: Callable[[], None], device: torch.device) -> int:
    with footprint(device) as taken:
        work()
    return taken.peak_memory_bytes


def timed(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
