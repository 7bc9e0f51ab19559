"""Any data set of the Hugging Face hub, by its id."""

from collections.abc import Iterator

from fedunlearn.data.sources.interface import SOURCES, HubSource
from fedunlearn.settings import settings


@SOURCES.register("hub")
@settings
class Hub(HubSource):
    """Any data set of the Hugging Face hub, by its id.

    Attributes:
        dataset: hub id, ``owner/name``.
        config: configuration (subset); ``None``: the data set's default.
        split: of the configuration; several are read one after another.
    """

    dataset: str
    config: str | None = None
    split: str | tuple[str, ...] = "train"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.dataset.strip() or not self.split:
            raise ValueError("dataset and split must not be empty")

    def tables(self) -> Iterator[tuple[str, str | None, str]]:
        """One table a split."""
        for split in (self.split,) if isinstance(self.split, str) else self.split:
            yield self.dataset, self.config, split
