"""A study as Markdown, for people: ``compare.md``."""

from collections.abc import Mapping

from fedunlearn.matching import CLOSE
from fedunlearn.scores import METRIC_NAMES
from fedunlearn.study.schema import Study
from fedunlearn.study.tables import (
    ablation_metrics,
    ablation_points,
    ablation_table,
    domains_table,
    envelopes_table,
    frontier_table,
    matched_table,
    norms_table,
    pairs_table,
)
from fedunlearn.tables import as_markdown, bullets


def study_markdown(study: Study, *, plots: Mapping[str, str]) -> str:
    """Render the whole study.

    Args:
        study: what was found.
        plots: kind (``frontier``, ``envelopes``, ``norms``, ``domains``) to an image beside it.
    """
    sections = [
        "# Comparison of a sweep",
        _facts(study),
        *_matched(study),
        *_envelopes(study, plots),
        *_frontier(study, plots),
        *_ablation(study),
        *_norms(study, plots),
        *_domains(study, plots),
        *bullets("What these numbers cannot show", study.limits),
    ]
    return "\n\n".join(sections) + "\n"


def _facts(study: Study) -> str:
    evaluated = sum(point.sets is not None for point in study.points)
    facts = [
        f"Base model `{study.base_model}`, sha256 `{study.base_model_sha256[:16]}`",
        f"{len(study.points)} settings of {len(study.variants)} variants, {evaluated} evaluated",
        f"Forget domains: {', '.join(study.domains) or 'none'}",
    ]
    if study.metric is None:
        facts.append("Nothing was evaluated, so only norms are compared; sweep with --evaluate")
    else:
        chances = study.chances
        facts.append(
            f"Intervals hold {chances.confidence:.0%}: Wilson's for multiple-choice accuracy, else "
            f"bootstrap percentiles over questions ({chances.resamples} resamples, seed "
            f"{chances.seed}); differences are paired, question by question"
        )
    return "\n".join(f"- {fact}" for fact in facts)


def _matched(study: Study) -> list[str]:
    if not study.matched or study.metric is None:
        return []
    table = matched_table(study)
    return [
        "## At matched forgetting",
        f"Each setting of A beside the setting of B that forgets most alike in "
        f"{METRIC_NAMES[study.metric]}: the smallest largest gap over the forget sets, ties by the "
        f"sum of gaps, then the lower gamma. What is kept is never looked at when matching. Gaps "
        f"above {CLOSE} are no match. A win is sure when the interval of a difference in what is "
        f"kept leaves out zero. The last two columns are means over the matched settings.",
        as_markdown(pairs_table(study)),
        *(["Every matched pair of settings:", as_markdown(table)] if table.rows else []),
    ]


def _envelopes(study: Study, plots: Mapping[str, str]) -> list[str]:
    if not study.envelopes:
        return []
    return [
        "## Envelopes",
        "The highest kept score seen under each ceiling on a forget score, without interpolation, "
        "averaged over the range of ceilings that both variants span. In a resample both the "
        "envelopes and the range are found anew.",
        *_image(plots, "envelopes", "the best kept under each forget ceiling"),
        as_markdown(envelopes_table(study)),
    ]


def _frontier(study: Study, plots: Mapping[str, str]) -> list[str]:
    if not study.standings:
        return []
    return [
        "## Pareto frontier",
        "A setting is on the frontier when no other one forgets as much (mean over the forget "
        "sets) and keeps as much, or more of either. The last column is the share of bootstrap "
        "resamples of the questions in which it is on it.",
        *_image(plots, "frontier", "forgetting against what is kept"),
        as_markdown(frontier_table(study)),
    ]


def _ablation(study: Study) -> list[str]:
    if study.ablation_gamma is None or not ablation_points(study):
        return []
    parts = [f"## Side by side at gamma {study.ablation_gamma:g}"]
    parts.append(
        "One scale for all, as in an ablation. Scales of different methods are not comparable: "
        "read who keeps more off the matched comparison."
    )
    for metric in ablation_metrics(study):
        name = METRIC_NAMES[metric]
        parts += [f"{name[0].upper()}{name[1:]}:", as_markdown(ablation_table(study, metric))]
    return parts


def _norms(study: Study, plots: Mapping[str, str]) -> list[str]:
    if not study.whole:
        return []
    return [
        "## Norm against gamma",
        "Euclidean norm of the whole update, as delivered.",
        *_image(plots, "norms", "norm against gamma"),
        as_markdown(norms_table(study)),
    ]


def _domains(study: Study, plots: Mapping[str, str]) -> list[str]:
    if not study.growing:
        return []
    return [
        "## Norm against the number of forget domains",
        "Domains join in the order given; every retain client takes part throughout.",
        *_image(plots, "domains", "norm against the number of domains"),
        as_markdown(domains_table(study)),
    ]


def _image(plots: Mapping[str, str], kind: str, text: str) -> list[str]:
    return [f"![{text}]({plots[kind]})"] if kind in plots else []
