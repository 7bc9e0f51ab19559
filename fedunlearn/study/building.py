"""Works a stored sweep out into a study: matches, envelopes, frontier, and how sure each is."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import get_args

import numpy as np

from fedunlearn.evaluation import SetScores
from fedunlearn.exploration import PointRecord, Provenance
from fedunlearn.matching import Setting, compare_all
from fedunlearn.metrics.wilson import Interval
from fedunlearn.scores import Metric, leading_metric, setting, summarise
from fedunlearn.study.envelope import common_range, normalised_area
from fedunlearn.study.frontier import on_frontier
from fedunlearn.study.resampling import Array, Plane, Resampled
from fedunlearn.study.schema import (
    FORMAT_VERSION,
    LIMITS,
    Chances,
    EnvelopeGap,
    Kept,
    Matched,
    SetEstimates,
    Standing,
    Study,
    StudyPoint,
)
from fedunlearn.study.uncertainty import percentile_interval

KEPT: tuple[Kept, ...] = get_args(Kept)


def build_study(
    provenance: Provenance,
    base: Mapping[str, SetScores] | None,
    records: Sequence[PointRecord],
    *,
    chances: Chances,
    at: float | None = None,
    references: Sequence[str] = (),
) -> Study:
    """Compare the points of a sweep.

    Args:
        provenance: what the sweep was made from.
        base: scores of the base model, if it was evaluated.
        records: every point, in the order in which they are to appear.
        chances: confidence, resamples and seed.
        at: gamma at which the variants are set side by side; by default the one that most
            variants were tried at, of several the one nearest to 1.
        references: variants to match with every other one; by default every pair once, the
            earlier variant first.
    """
    domains = _all_domains(records)
    judged = [r for r in records if r.scores and set(r.point.domains) == set(domains)]
    metric = leading_metric(summarise(base)) if base else None
    plane = Plane(Resampled([r.scores or {} for r in judged], chances), metric or "rouge_l_recall")
    return Study(
        format_version=FORMAT_VERSION,
        base_model=provenance.base_model,
        base_model_sha256=provenance.base_model_sha256,
        chances=chances,
        metric=metric,
        base=Resampled([base], chances).estimates()[0] if base else None,
        points=tuple(_points(records, chances)),
        domains=domains,
        ablation_gamma=_ablation_gamma(records) if at is None else at,
        matched=tuple(_matches(judged, plane, references)),
        envelopes=tuple(_envelopes(judged, plane)),
        standings=tuple(one for kept in KEPT for one in _standings(judged, plane, kept)),
        limits=LIMITS,
    )


def _all_domains(records: Sequence[PointRecord]) -> tuple[str, ...]:
    """The forget domains, in the order of the point that has most of them."""
    return max((record.point.domains for record in records), key=len, default=())


def _points(records: Sequence[PointRecord], chances: Chances) -> Iterator[StudyPoint]:
    measured = [record.scores for record in records if record.scores]
    estimates: Iterator[dict[str, SetEstimates]] = iter(Resampled(measured, chances).estimates())
    for record in records:
        yield StudyPoint(
            variant=record.point.variant,
            gamma=record.point.merge.gamma,
            domains=record.point.domains,
            norm=record.merged.norm,
            raw_norm=record.merged.raw_norm,
            constrained_tensors=record.merged.constrained_tensors,
            sets=next(estimates) if record.scores else None,
        )


def _ablation_gamma(records: Sequence[PointRecord]) -> float | None:
    tried: dict[float, set[str]] = {}
    for record in records:
        tried.setdefault(record.point.merge.gamma, set()).add(record.point.variant)
    if not tried:
        return None
    return min(tried, key=lambda gamma: (-len(tried[gamma]), abs(gamma - 1.0), gamma))


def _matches(
    records: Sequence[PointRecord], plane: Plane, references: Sequence[str]
) -> Iterator[Matched]:
    settings = [_setting(record, plane.metric) for record in records]
    places = {(one.merge, one.gamma): place for place, one in enumerate(settings)}
    kept = {kind: plane.group(kind) for kind in KEPT}
    for comparison in compare_all(settings, references or list(_variants(records))):
        pair = [places[one.merge, one.gamma] for one in (comparison.setting, comparison.other)]
        yield Matched(
            comparison,
            _gain_interval(kept["retain"], pair, comparison.retain_gain, plane),
            _gain_interval(kept["utility"], pair, comparison.utility_gain, plane),
        )


def _setting(record: PointRecord, metric: Metric) -> Setting:
    sets = summarise(record.scores or {})
    return setting(record.point.variant, record.point.merge.gamma, sets, metric=metric)


def _gain_interval(
    kept: tuple[Array, Array] | None, pair: Sequence[int], gain: float | None, plane: Plane
) -> Interval | None:
    if kept is None or gain is None:
        return None
    first, second = pair
    samples = kept[1][:, first] - kept[1][:, second]
    return percentile_interval(samples, confidence=plane.scores.chances.confidence)


def _envelopes(records: Sequence[PointRecord], plane: Plane) -> Iterator[EnvelopeGap]:
    columns = _variants(records)
    for kind in KEPT:
        kept = plane.group(kind)
        for name in plane.forget_sets() if kept is not None else ():
            for first, second in combinations(columns, 2):
                pair = columns[first], columns[second]
                sides = [_side(plane.forget(name), kept, places) for places in pair]
                yield from _gap((first, second), sides, name, kind, plane)


def _side(
    forget: tuple[Array, Array], kept: tuple[Array, Array] | None, places: Sequence[int]
) -> list[tuple[Array, Array]]:
    """Forget and kept scores of one variant, as observed and then as drawn."""
    return [(f[..., places], k[..., places]) for f, k in zip(forget, kept or (), strict=True)]


def _gap(
    names: tuple[str, str],
    sides: Sequence[Sequence[tuple[Array, Array]]],
    forget_set: str,
    kept: Kept,
    plane: Plane,
) -> Iterator[EnvelopeGap]:
    """Yield the difference of two envelopes, unless the two have no range in common."""
    areas = []
    for first, second in zip(*sides, strict=True):
        low, high = common_range(first[0], second[0])
        areas.append(
            (low, high, *(normalised_area(f, k, low=low, high=high) for f, k in (first, second)))
        )
    (low, high, ours, theirs), (_, _, *drawn) = areas
    differences = drawn[0] - drawn[1]
    if np.isnan(ours) or np.isnan(differences).all():
        return
    yield EnvelopeGap(
        *names,
        forget_set,
        kept,
        float(low),
        float(high),
        float(ours),
        float(theirs),
        float(ours - theirs),
        percentile_interval(differences, confidence=plane.scores.chances.confidence),
    )


def _standings(records: Sequence[PointRecord], plane: Plane, kind: Kept) -> Iterator[Standing]:
    forget, kept = plane.group("forget"), plane.group(kind)
    if forget is None or kept is None:
        return
    now = on_frontier(forget[0], kept[0])
    shares = on_frontier(forget[1], kept[1]).mean(axis=0)
    for place, record in enumerate(records):
        yield Standing(
            variant=record.point.variant,
            gamma=record.point.merge.gamma,
            kept_kind=kind,
            forget=float(forget[0][place]),
            kept=float(kept[0][place]),
            on_frontier=bool(now[place]),
            share=float(shares[place]),
        )


def _variants(records: Sequence[PointRecord]) -> dict[str, list[int]]:
    """Places of every variant's points."""
    found: dict[str, list[int]] = {}
    for place, record in enumerate(records):
        found.setdefault(record.point.variant, []).append(place)
    return found
