"""The diagonal empirical Fisher of a client's data (FIRM, eq. 1 and appendix C)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from fedunlearn.data.encoding import Batch, Example, collate
from fedunlearn.errors import RunError
from fedunlearn.objectives.likelihood import IGNORED, sequence_log_probs
from fedunlearn.settings import settings
from fedunlearn.training.forward import aligned_logits
from fedunlearn.training.squared_gradients import squared_gradients


@settings
class FisherSettings:
    """How much data the Fisher estimate sees.

    Attributes:
        num_sequences: sequences, in the data's order, cycling when there are fewer; 20 in the
            paper.
        max_length: tokens a sequence is truncated to; 512 in the paper.
        targets: ``sequence`` averages the loss over every non-padding target token, as the
            paper; ``answer`` over the answer's tokens only.
        batch_size: sequences a forward and backward pass; a matter of time and memory, since the
            estimate depends on it only by rounding.
    """

    num_sequences: int = 20
    max_length: int = 512
    targets: Literal["sequence", "answer"] = "sequence"
    batch_size: int = 4

    def __post_init__(self) -> None:
        if min(self.num_sequences, self.batch_size) < 1 or self.max_length < 2:
            raise ValueError("num_sequences and batch_size must be >= 1, max_length >= 2")


def estimate_fisher(
    model: torch.nn.Module,
    examples: Sequence[Example],
    names: Sequence[str],
    *,
    chosen: FisherSettings,
) -> dict[str, Tensor]:
    """Estimate eq. 1 at the weights ``model`` holds now, which must be the reference weights.

    ``F = 1/N sum_n (dL_n / dW) ** 2``, with L_n the mean loss over the target tokens of sequence
    n alone: squaring comes before averaging, whatever the batch size. One forward and one
    backward pass a batch; only the named weights take part in the latter, and no ``.grad``
    buffer is made for any. Beside the passes' own activations, memory holds one float32
    accumulator a named weight.

    Args:
        model: without adapters; in evaluation mode, unless checkpointing is to save memory and
            there is no dropout.
        examples: the client's data, in its order.
        names: base parameter names of the adapted weights, of ``nn.Linear`` or transformers'
            ``Conv1D`` modules.
        chosen: how many sequences, how many at a time, and which tokens count.

    Returns:
        Name to bfloat16 tensor of the weight's shape, non-negative, on the CPU; accumulated in
        float32 and rounded once.

    Raises:
        InputError: a weight of another kind of module, or a layer whose input does not tell
            sequences apart; the text names it.
        RunError: a gradient is not finite; the text names the weight and the sequences.
    """
    device = next(model.parameters()).device
    with squared_gradients(model, names) as squares:
        for numbers, batch in _batches(examples, chosen):
            logits, labels = aligned_logits(model, batch.to(device))
            squares.add(_sequence_losses(logits, labels))
            _refuse_infinite(squares.totals, numbers)
        totals = squares.totals
    return {name: _mean(totals.pop(name), chosen.num_sequences) for name in sorted(totals)}


def _batches(
    examples: Sequence[Example], chosen: FisherSettings
) -> Iterator[tuple[Sequence[int], Batch]]:
    """Cut the sequences into padded batches, with their places in the estimate."""
    for start in range(0, chosen.num_sequences, chosen.batch_size):
        numbers = range(start, min(start + chosen.batch_size, chosen.num_sequences))
        rows = [_with_targets(examples[n % len(examples)], chosen) for n in numbers]
        yield numbers, collate(rows, pad_id=0)


def _sequence_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean loss over the target tokens of each sequence, (B,) float32."""
    return -sequence_log_probs(logits, labels) / (labels != IGNORED).sum(-1).clamp(min=1)


def _refuse_infinite(totals: Mapping[str, Tensor], numbers: Sequence[int]) -> None:
    """Sums of squares are finite exactly where every square is, short of float32's range."""
    for name, total in totals.items():
        if not bool(total.sum().isfinite()):
            last = f" to {numbers[-1]}" if len(numbers) > 1 else ""
            raise RunError(f"Fisher of {name} is not finite at sequence {numbers[0]}{last}")


def _mean(total: Tensor, count: int) -> Tensor:
    return total.div_(count).to(torch.bfloat16).cpu()


def _with_targets(example: Example, chosen: FisherSettings) -> Example:
    ids = example.input_ids[: chosen.max_length]
    if chosen.targets == "sequence":
        return Example(ids, ids)
    return Example(ids, example.labels[: chosen.max_length])
