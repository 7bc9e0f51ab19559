"""WMDP (Li et al., 2024): questions about hazardous knowledge, and the corpora behind them."""

from collections.abc import Iterator
from typing import Literal

from fedunlearn.data.sources.interface import SOURCES, HubSource
from fedunlearn.settings import settings


@SOURCES.register("wmdp")
@settings
class Wmdp(HubSource):
    """WMDP: questions on hazardous biology, chemistry and cyber attacks.

    Every question has four choices.

    Attributes:
        subset: ``bio`` (1,273 questions), ``chem`` (408) or ``cyber`` (1,987).
        dataset: hub id.
    """

    subset: Literal["bio", "chem", "cyber"]
    dataset: str = "cais/wmdp"

    def tables(self) -> Iterator[tuple[str, str | None, str]]:
        """The one split of the subject."""
        yield self.dataset, f"wmdp-{self.subset}", "test"


@SOURCES.register("wmdp_corpora")
@settings
class WmdpCorpora(HubSource):
    """WMDP's corpora: papers and web pages as passages.

    ``bio-forget`` is restricted: its authors grant access on request; log in to the hub then, or
    give a local copy with ``path``. The others are public.

    Attributes:
        subset: ``bio-forget``, ``bio-retain``, ``cyber-forget`` or ``cyber-retain``.
    """

    subset: Literal["bio-forget", "bio-retain", "cyber-forget", "cyber-retain"]

    def tables(self) -> Iterator[tuple[str, str | None, str]]:
        """The corpus; the restricted one is a data set of its own."""
        if self.subset == "bio-forget":
            yield "cais/wmdp-bio-forget-corpus", None, "train"
        else:
            yield "cais/wmdp-corpora", f"{self.subset}-corpus", "train"
