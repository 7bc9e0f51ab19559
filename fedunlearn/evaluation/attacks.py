"""The membership attacks of a text, as one record: which are run is one choice for all tasks."""

from collections.abc import Sequence
from dataclasses import replace

from fedunlearn.data.encoding import Example
from fedunlearn.evaluation.bench import Bench
from fedunlearn.evaluation.samples import Record
from fedunlearn.metrics import (
    GradNorm,
    Loss,
    MinK,
    MinKPlusPlus,
    ReferenceLoss,
    TokenMetric,
    ZLib,
)
from fedunlearn.settings import settings


@settings
class AttackSettings:
    """Which attacks, with what.

    Attributes:
        share: of the tokens that Min-K and Min-K++ look at.
        drops_last: whether they leave the last target out (open-unlearning does, muse_bench not).
        grad_norm: also GradNorm, which costs a backward pass a text.
        reference: also the reference attack; needs a reference model.
    """

    share: float = 0.4
    drops_last: bool = True
    grad_norm: bool = False
    reference: bool = False

    @property
    def metrics(self) -> dict[str, TokenMetric]:
        """Attack name to its score of a text; a low one means that the text is known."""
        found: dict[str, TokenMetric] = {
            "loss": Loss(),
            "zlib": ZLib(),
            "min_k": MinK(share=self.share, drops_last=self.drops_last),
            "min_k_plus_plus": MinKPlusPlus(share=self.share, drops_last=self.drops_last),
        }
        if self.grad_norm:
            found["grad_norm"] = GradNorm()
        if self.reference:
            found["reference"] = ReferenceLoss()
        return found


def attack(
    bench: Bench,
    examples: Sequence[Example],
    chosen: AttackSettings,
    *,
    texts: Sequence[str] | None = None,
) -> list[Record]:
    """Score texts by every attack.

    Args:
        bench: the model.
        examples: the texts.
        chosen: which attacks.
        texts: what ZLib compresses; ``None``: the targets.
    """
    seen = bench.attacked(examples, gradients=chosen.grad_norm)
    if texts is not None:
        seen = [replace(one, text=text) for one, text in zip(seen, texts, strict=True)]
    metrics = chosen.metrics
    return [{name: metric(one) for name, metric in metrics.items()} for one in seen]
