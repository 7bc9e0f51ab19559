"""Runs the model over texts once and keeps what every metric needs of it.

Only positions that predict a target are projected onto the vocabulary, and of those only a block
at a time is turned into float32: no tensor of batch x length x vocabulary exists, unless the
model's own forward pass cannot leave positions out.
"""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, cast

import torch
from torch import Tensor

from fedunlearn.data.encoding import Example
from fedunlearn.metrics import Observed
from fedunlearn.models.loading import LoadedModel
from fedunlearn.objectives.likelihood import IGNORED

Padding = Literal["left", "right"]
_BLOCK = 1 << 24
"""Entries of a float32 block of log-probabilities: 64 MiB."""


@dataclass(frozen=True)
class Query:
    """What the model is shown, and the tokens whose probability is asked for.

    Attributes:
        input_ids: shown.
        at: positions; what is predicted after ``input_ids[at[j]]`` is asked.
        targets: the token asked for at each; a position may be asked more than once.
    """

    input_ids: tuple[int, ...]
    at: tuple[int, ...]
    targets: tuple[int, ...]


def query(example: Example) -> Query:
    """Ask for the targets of an example; the last token predicts none and is not shown."""
    places = [place for place, label in enumerate(example.labels) if label != IGNORED]
    return Query(
        example.input_ids[: max(places)],
        tuple(place - 1 for place in places),
        tuple(example.labels[place] for place in places),
    )


@torch.no_grad()
def observe(
    base: LoadedModel,
    queries: Sequence[Query],
    *,
    batch_size: int,
    moments: bool = False,
    padding: Padding = "right",
) -> list[Observed]:
    """Observe each query's targets; equal queries are computed once.

    The result depends on neither order nor batch: float32 log-probabilities agree to 1e-4.

    Args:
        base: the model, in evaluation mode.
        queries: what is shown and what is asked.
        batch_size: queries a forward pass, of similar length.
        moments: also mean and variance of log p over the vocabulary.
        padding: side on which short queries are filled.
    """
    fresh = list(dict.fromkeys(queries))
    seen: dict[Query, Observed] = {}
    for part in by_length([len(one.input_ids) for one in fresh], batch_size):
        rows = [fresh[place] for place in part]
        seen |= zip(rows, _batch(base, rows, moments, padding), strict=True)
    return [seen[one] for one in queries]


def by_length(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Yield indices in batches of similar length, so that little is spent on padding."""
    order = sorted(range(len(lengths)), key=lambda place: (lengths[place], place))
    for start in range(0, len(order), size):
        yield order[start : start + size]


@dataclass(frozen=True)
class _Targets:
    """Where the targets of a batch are: target j is token ``ids[j]``, predicted at ``at[j]``."""

    rows: Tensor
    at: Tensor
    ids: Tensor
    counts: list[int]


def _batch(
    base: LoadedModel, queries: Sequence[Query], moments: bool, padding: Padding
) -> list[Observed]:
    longest = max(len(one.input_ids) for one in queries)
    offsets = [longest - len(one.input_ids) if padding == "left" else 0 for one in queries]
    targets = _targets(queries, offsets)
    keep, logits = _logits(base, queries, targets, offsets, longest)
    place = torch.searchsorted(keep, targets.at)
    stats = _statistics(logits, targets, place, moments)
    parts = [_rows(column, targets.counts) for column in stats]
    return [
        Observed(log_probs, greedy, mean, variance, text)
        for log_probs, greedy, mean, variance, text in zip(
            *parts, _texts(base, queries), strict=True
        )
    ]


def _rows(column: Tensor, counts: Sequence[int]) -> Sequence[Tensor]:
    """Cut a column of all targets into those of each query; a column that is empty stays so."""
    return (
        column.tensor_split(list(accumulate(counts))[:-1])
        if len(column)
        else [column] * len(counts)
    )


def _targets(queries: Sequence[Query], offsets: Sequence[int]) -> _Targets:
    found = [
        (row, offset + place, target)
        for row, (one, offset) in enumerate(zip(queries, offsets, strict=True))
        for place, target in zip(one.at, one.targets, strict=True)
    ]
    rows, at, ids = (torch.tensor(column) for column in zip(*found, strict=True))
    return _Targets(rows, at, ids, [len(one.targets) for one in queries])


def _logits(
    base: LoadedModel,
    queries: Sequence[Query],
    targets: _Targets,
    offsets: Sequence[int],
    longest: int,
) -> tuple[Tensor, Tensor]:
    """Positions that predict some target, rising, and the logits there, (B, K, V)."""
    keep = torch.unique(targets.at)
    pad = cast(int, base.tokenizer.pad_token_id)
    ids = torch.full((len(queries), longest), pad)
    mask = torch.zeros(len(queries), longest, dtype=torch.long)
    for row, (one, offset) in enumerate(zip(queries, offsets, strict=True)):
        ids[row, offset : offset + len(one.input_ids)] = torch.tensor(one.input_ids)
        mask[row, offset : offset + len(one.input_ids)] = 1
    device, model = base.device, cast(Any, base.model)
    options: dict[str, Any] = {"attention_mask": mask.to(device), "use_cache": False}
    known = inspect.signature(model.forward).parameters
    if any(offsets) and "position_ids" in known:
        options["position_ids"] = (mask.cumsum(-1) - 1).clamp_min(0).to(device)
    if "logits_to_keep" not in known:
        return keep, model(input_ids=ids.to(device), **options).logits[:, keep.to(device)]
    options["logits_to_keep"] = keep.to(device)
    return keep, model(input_ids=ids.to(device), **options).logits


def _statistics(
    logits: Tensor, targets: _Targets, place: Tensor, moments: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log p, whether greedy, mean and variance of every target, float64 on the CPU."""
    count, vocabulary = len(targets.ids), logits.shape[-1]
    block = max(1, _BLOCK // vocabulary)
    device = logits.device
    rows, at, ids = targets.rows.to(device), place.to(device), targets.ids.to(device)
    columns = [torch.empty(count), torch.empty(count, dtype=torch.bool)]
    columns += [torch.empty(count if moments else 0) for _ in range(2)]
    for start in range(0, count, block):
        part = slice(start, start + block)
        log_probs = logits[rows[part], at[part]].float().log_softmax(-1)
        target = log_probs.gather(-1, ids[part].unsqueeze(-1)).squeeze(-1)
        columns[0][part] = target.cpu()
        columns[1][part] = (log_probs.argmax(-1) == ids[part]).cpu()
        if moments:
            mean, variance = _moments(log_probs)
            columns[2][part], columns[3][part] = mean.cpu(), variance.cpu()
    return columns[0].double(), columns[1], columns[2].double(), columns[3].double()


def _moments(log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of log p under p; tokens of probability 0 count nothing."""
    probs = log_probs.exp()
    finite = log_probs.masked_fill(probs == 0, 0.0)
    mean = (probs * finite).sum(-1, keepdim=True)
    # centred first: the difference of the two moments would lose what digits float32 has
    return mean.squeeze(-1), (probs * (finite - mean) ** 2).sum(-1)


def _texts(base: LoadedModel, queries: Sequence[Query]) -> list[str]:
    targets = [list(one.targets) for one in queries]
    decoded = cast(Any, base.tokenizer).batch_decode(targets, skip_special_tokens=True)
    return [str(text) for text in decoded]
