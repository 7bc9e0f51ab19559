"""Label skew: the share of every label a client holds is drawn from a Dirichlet distribution."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

from fedunlearn.data.partition.interface import PARTITIONERS, NumberedPartitioner, drawn_order
from fedunlearn.seeding import derive
from fedunlearn.settings import settings


@PARTITIONERS.register("dirichlet")
@settings
class Dirichlet(NumberedPartitioner):
    """Shares of every label are drawn from Dirichlet(alpha): small alpha, one-sided clients.

    Each label's records are mixed and cut at its cumulated shares (Hsu et al., 2019).

    Attributes:
        column: the label, e.g. ``subject``.
        alpha: concentration, > 0: 0.1 leaves most of a label with one client, 100 is near iid.
    """

    column: str
    alpha: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.alpha > 0 and math.isfinite(self.alpha)):
            raise ValueError(f"alpha must be a finite number > 0, got {self.alpha}")

    @property
    def key_column(self) -> str:
        """``column``."""
        return self.column

    def assign(self, keys: Sequence[str]) -> list[Hashable]:
        """Cut every label at its own shares."""
        places = defaultdict[str, list[int]](list)
        for place, key in enumerate(keys):
            places[key].append(place)
        assigned: list[Hashable] = [0] * len(keys)
        for label, held in places.items():
            order = drawn_order(len(held), "dirichlet", label, seed=self.seed)
            cuts = self._cuts(label, len(held))
            for turn, one in enumerate(order):
                assigned[held[one]] = sum(turn >= cut for cut in cuts)
        return assigned

    def _cuts(self, label: str, count: int) -> list[int]:
        """Where each part but the last one ends among ``count`` records of a label."""
        draw = random.Random(derive(self.seed, "dirichlet shares", label))
        shares = [draw.gammavariate(self.alpha, 1.0) for _ in range(self.parts)]
        if not sum(shares):  # every draw fell below the smallest number: all for one
            shares[draw.randrange(self.parts)] = 1.0
        total, passed, cuts = math.fsum(shares), 0.0, []
        for share in shares[:-1]:
            passed += share
            cuts.append(round(count * min(1.0, passed / total)))
        return cuts

    def shortage(self, empty: Sequence[Hashable], sizes: Counter[Hashable], records: int) -> str:
        """Name what makes shares less one-sided."""
        return (
            f"part {', '.join(map(str, empty))} of {self.parts} would get none of the {records} "
            f"records at alpha={self.alpha:g}, seed={self.seed}: raise alpha, take fewer parts or "
            "another seed"
        )
