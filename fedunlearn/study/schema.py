"""What a comparison of a sweep found, as one typed object: ``compare.json``, field for field.

``docs/SWEEPS.md`` explains it to readers of the file.
"""

from dataclasses import dataclass
from typing import Literal

from fedunlearn.matching import Comparison
from fedunlearn.metrics.wilson import Interval
from fedunlearn.scores import Metric

FORMAT_VERSION = 1
Kept = Literal["retain", "utility"]

LIMITS = (
    "Intervals are over questions only: how far a number may be off because these questions were "
    "asked and not others of the kind. One training seed, one set of client summaries and one "
    "base model stand behind all of it; what another training run would change is in no interval.",
    "Matched settings are chosen by forget scores on the same questions. Their intervals hold for "
    "the pair as chosen, one at a time: of many comparisons some leave out zero by chance.",
    "Envelopes and frontiers are of the settings that were tried. A finer grid of gammas raises "
    "envelopes, and a method that was tried at more settings has more chances.",
)


@dataclass(frozen=True)
class Chances:
    """How the uncertainty was worked out.

    Attributes:
        confidence: of every interval.
        resamples: of the bootstrap.
        seed: of the bootstrap's draws.
    """

    confidence: float = 0.95
    resamples: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1 or self.resamples < 1:
            raise ValueError("confidence must be in (0, 1) and resamples >= 1")


@dataclass(frozen=True)
class Estimate:
    """A mean over questions.

    Attributes:
        mean: in [0, 1].
        n: number of questions.
        interval: Wilson's for multiple-choice accuracy, else the bootstrap's percentiles.
    """

    mean: float
    n: int
    interval: Interval


@dataclass(frozen=True)
class SetEstimates:
    """One question set under one model; ``None`` where a score was not measured."""

    kind: str
    domain: str
    rouge_l_recall: Estimate | None
    answer_probability: Estimate | None
    choice_accuracy: Estimate | None
    extraction_strength: Estimate | None = None
    truth_ratio: Estimate | None = None


@dataclass(frozen=True)
class StudyPoint:
    """A setting that was tried.

    Attributes:
        variant: method, options, alpha and budget in one name.
        gamma: its scale.
        domains: forget domains that took part.
        norm: Euclidean norm of the whole update.
        raw_norm: the same before the projection.
        constrained_tensors: tensors on which the budget was active.
        sets: question set to scores; ``None`` if the point was not evaluated.
    """

    variant: str
    gamma: float
    domains: tuple[str, ...]
    norm: float
    raw_norm: float
    constrained_tensors: int
    sets: dict[str, SetEstimates] | None


@dataclass(frozen=True)
class Matched:
    """Two settings that forget most alike, and how sure the difference in what they keep is."""

    comparison: Comparison
    retain_interval: Interval | None
    utility_interval: Interval | None

    @property
    def sure(self) -> bool:
        """Whether some difference in what is kept has an interval that leaves out zero."""
        known = (self.retain_interval, self.utility_interval)
        return any(one is not None and one.excludes_zero for one in known)


@dataclass(frozen=True)
class EnvelopeGap:
    """Range-normalised areas of two variants' envelopes over one forget set.

    Attributes:
        first: a variant.
        second: another.
        forget_set: whose score is the ceiling.
        kept: which kind of sets the height is the mean of.
        low: lower end of the common range.
        high: its upper end.
        first_area: mean height of the first variant's envelope over the range.
        second_area: the same of the second.
        difference: first minus second.
        interval: of the difference; the range is found anew in every resample.
    """

    first: str
    second: str
    forget_set: str
    kept: Kept
    low: float
    high: float
    first_area: float
    second_area: float
    difference: float
    interval: Interval


@dataclass(frozen=True)
class Standing:
    """Where a setting stands in the plane of forgetting and keeping.

    Attributes:
        variant: of the setting.
        gamma: of the setting.
        kept_kind: which kind of sets ``kept`` is the mean of.
        forget: mean score over the forget sets, lower is more forgotten.
        kept: mean score over the sets of that kind.
        on_frontier: no other setting forgets as much and keeps as much, or more of either.
        share: of bootstrap resamples in which it is on the frontier.
    """

    variant: str
    gamma: float
    kept_kind: Kept
    forget: float
    kept: float
    on_frontier: bool
    share: float


@dataclass(frozen=True)
class Study:
    """Everything ``compare.json`` holds.

    Attributes:
        format_version: of this layout.
        base_model: name of the base model.
        base_model_sha256: its hash.
        chances: how the uncertainty was worked out.
        metric: forgetting is matched on; ``None`` if nothing was evaluated.
        base: scores of the base model.
        points: every setting, by variant, then domains, then gamma.
        domains: all forget domains.
        ablation_gamma: at which the variants are set side by side; ``None`` without a point.
        matched: every pair of variants, setting by setting.
        envelopes: every pair of variants, by forget set.
        standings: every evaluated setting, for each kind of kept sets.
        limits: what the numbers cannot show.
    """

    format_version: int
    base_model: str
    base_model_sha256: str
    chances: Chances
    metric: Metric | None
    base: dict[str, SetEstimates] | None
    points: tuple[StudyPoint, ...]
    domains: tuple[str, ...]
    ablation_gamma: float | None
    matched: tuple[Matched, ...]
    envelopes: tuple[EnvelopeGap, ...]
    standings: tuple[Standing, ...]
    limits: tuple[str, ...]

    @property
    def whole(self) -> tuple[StudyPoint, ...]:
        """Points in which every forget domain took part."""
        return tuple(p for p in self.points if set(p.domains) == set(self.domains))

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the variants, in order."""
        return tuple(dict.fromkeys(point.variant for point in self.whole))

    def of(self, variant: str) -> tuple[StudyPoint, ...]:
        """Points of a variant with every forget domain, by rising gamma."""
        return tuple(point for point in self.whole if point.variant == variant)

    @property
    def growing(self) -> tuple[StudyPoint, ...]:
        """Points of variants and gammas that were tried with several numbers of domains."""
        counts: dict[tuple[str, float], set[int]] = {}
        for point in self.points:
            counts.setdefault((point.variant, point.gamma), set()).add(len(point.domains))
        return tuple(p for p in self.points if len(counts[p.variant, p.gamma]) > 1)
