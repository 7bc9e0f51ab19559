"""Which probes are put to a model."""

from fedunlearn.evaluation.asking import PromptProbes
from fedunlearn.models.rounding import Format
from fedunlearn.settings import settings
from fedunlearn.training.relearning import RelearnSettings


@settings
class ProbeSettings:
    """The probes; each can be left out.

    Attributes:
        relearning: a few steps on a few rows; ``None``: not tried.
        formats: to which weights are rounded; empty: to none.
        prompts: other ways to ask; ``None``: not tried.
        seed: of the rows that are relearned, their order and the adapter.
    """

    relearning: RelearnSettings | None = RelearnSettings()
    formats: tuple[Format, ...] = ("bfloat16", "int8", "nf4")
    prompts: PromptProbes | None = PromptProbes()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.relearning is None and not self.formats and self.prompts is None:
            raise ValueError("name at least one of relearning, formats and prompts")
        if len(set(self.formats)) != len(self.formats):
            raise ValueError(f"formats must differ, got {list(self.formats)}")
