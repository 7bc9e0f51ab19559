"""Builds the report from what a run left behind: summaries, events and findings."""

import math
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedunlearn import __version__
from fedunlearn.absence import absentees
from fedunlearn.aggregation import MergeReport
from fedunlearn.config.schema import RunConfig
from fedunlearn.evaluation.own_data import ClientEvaluation
from fedunlearn.events import read_events
from fedunlearn.fates import fates
from fedunlearn.matching import compare_all
from fedunlearn.outliers import read_outliers
from fedunlearn.report import (
    FORMAT_VERSION,
    LIMITS,
    ClientReport,
    MergeReportRow,
    MissingClient,
    Report,
    RunFacts,
    SweepPoint,
)
from fedunlearn.scores import SetReport, leading_metric, setting
from fedunlearn.summary import ClientSummary, wire_bytes
from fedunlearn.sweeping import Finding

_STACK = ("flwr", "ray", "torch", "transformers", "peft")
_FEW = 50


def build_report(
    config: RunConfig,
    summaries: Sequence[ClientSummary],
    findings: Sequence[Finding],
    *,
    base: Mapping[str, SetReport],
    events: Path,
    warnings: Sequence[str],
    own_data: Sequence[ClientEvaluation] = (),
) -> Report:
    """Assemble everything ``report.json`` holds.

    Args:
        config: of the run.
        summaries: that went into the merges, by client id.
        findings: every merge at every gamma, in the plan's order.
        base: scores of the base model.
        events: the run's ``events.jsonl``; need not exist.
        warnings: what the round had to say.
        own_data: what clients said of a merge.
    """
    metric = leading_metric(base)
    configured = {f.trial.merge: f for f in findings if f.trial.configured}
    log = read_events(events) if events.is_file() else []
    settings = [setting(f.trial.merge, f.trial.gamma, f.sets, metric=metric) for f in findings]
    references = [name for name, chosen in config.merges.items() if chosen.method == "firm"]
    received = {summary.meta.client_id for summary in summaries}
    missing = tuple(
        MissingClient(f.client_id, f.role, f.domain, f.reason, f.consequence)
        for f in absentees(events, received)
    )
    said = [
        *(text for text in warnings if not any(m.consequence in text for m in missing)),
        *(text for finding in configured.values() for text in finding.report.warnings),
    ]
    sent = _bytes_sent(log)
    clients = tuple(_client(summary, sent) for summary in summaries)
    merges = {name: merge_row(finding.report) for name, finding in configured.items()}
    return Report(
        format_version=FORMAT_VERSION,
        run=_run_facts(config, summaries, log),
        clients=clients,
        missing=missing,
        warnings=tuple(dict.fromkeys(said)),
        metric=metric,
        base=dict(base),
        merges=merges,
        scores={name: finding.sets for name, finding in configured.items()},
        sweep=tuple(_sweep_point(f) for f in findings if f.trial.merge in config.swept),
        comparisons=tuple(compare_all(settings, references)),
        limits=(*LIMITS, *_ranking_limits(base, configured), *_sample_limits(base)),
        fates=fates(clients, missing, merges),
        outliers=read_outliers(log),
        own_data=tuple(own_data),
    )


def _run_facts(
    config: RunConfig, summaries: Sequence[ClientSummary], log: Sequence[Mapping[str, Any]]
) -> RunFacts:
    first = summaries[0].meta
    return RunFacts(
        name=config.name,
        seed=config.seed,
        base_model=first.base_model,
        base_model_sha256=first.base_model_sha256,
        seconds={"clients": log[-1]["time"] - log[0]["time"]} if log else {},
        versions=stack_versions(),
    )


def stack_versions() -> dict[str, str]:
    """Versions of this package and of what it stands on."""
    found = {"fedunlearn": __version__}
    for package in _STACK:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def _bytes_sent(log: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Client id to the bytes it was sent, over all attempts."""
    sent: dict[str, int] = {}
    for event in log:
        if event["event"] == "asked":
            sent[event["client_id"]] = sent.get(event["client_id"], 0) + event["bytes"]
    return sent


def _client(summary: ClientSummary, sent: Mapping[str, int]) -> ClientReport:
    meta = summary.meta
    return ClientReport(
        client_id=meta.client_id,
        role=meta.role,
        domain=meta.domain,
        objective=meta.objective,
        num_examples=meta.num_examples,
        bytes_uploaded=wire_bytes(summary),
        training=dict(meta.training),
        fisher=dict(meta.fisher),
        bytes_downloaded=sent.get(meta.client_id, 0),
    )


def merge_row(report: MergeReport) -> MergeReportRow:
    """Sum a merge's report up over its tensors."""
    tensors = report.tensors.values()
    budgets = report.epsilon_resolved
    damage = [tensor.damage_after for tensor in tensors]
    return MergeReportRow(
        method=report.method,
        gamma=report.gamma,
        alpha=report.alpha,
        epsilon=dict(budgets) if any(math.isfinite(b) for b in budgets.values()) else None,
        tensors=len(report.tensors),
        norm=_norm([tensor.norm for tensor in tensors]),
        raw_norm=report.gamma * _norm([tensor.raw_norm for tensor in tensors]),
        constrained_tensors=sum(any(tensor.multipliers.values()) for tensor in tensors),
        uncertified_tensors=sum(not tensor.certified for tensor in tensors),
        largest_damage={
            client: max(one[client] for one in damage)
            for client in sorted(damage[0] if damage else ())
        },
        warnings=report.warnings,
    )


def _norm(norms: Sequence[float]) -> float:
    return math.sqrt(math.fsum(norm * norm for norm in norms))


def _sweep_point(finding: Finding) -> SweepPoint:
    norms = [tensor.norm for tensor in finding.report.tensors.values()]
    return SweepPoint(finding.trial.merge, finding.trial.gamma, _norm(norms), finding.sets)


def _ranking_limits(base: Mapping[str, SetReport], configured: Mapping[str, Finding]) -> list[str]:
    """Name the merges whose forgotten answers are no longer given, but still recognised."""
    found = []
    for merge, finding in configured.items():
        for name, before in base.items():
            after = finding.sets[name]
            if before.kind == "forget" and _recognised(before, after):
                found.append(f"{merge} on {name} ({after.mean('choice_accuracy'):.2f})")
    if not found:
        return []
    return [
        "Answers that are no longer given may still be recognised: multiple-choice accuracy stays "
        f"near the base model's with {', '.join(found)}. That is suppression, not erasure."
    ]


def _recognised(before: SetReport, after: SetReport) -> bool:
    """Recall is halved at least, and nine tenths of the choice accuracy are left at least."""
    recall = before.mean("rouge_l_recall"), after.mean("rouge_l_recall")
    choice = before.mean("choice_accuracy"), after.mean("choice_accuracy")
    if recall[0] is None or recall[1] is None or choice[0] is None or choice[1] is None:
        return False
    return recall[1] <= recall[0] / 2 and choice[1] >= 0.9 * choice[0]


def _sample_limits(base: Mapping[str, SetReport]) -> list[str]:
    """Say how coarse the scores are, for the set with the fewest questions."""
    counts = {
        name: min(
            score.n for score in (one.rouge_l_recall, one.choice_accuracy) if score is not None
        )
        for name, one in base.items()
    }
    name, n = min(counts.items(), key=lambda pair: pair[1])
    coarse = f"The smallest set, {name}, has {n} questions: one question is {100 / n:.2g} points"
    few = "; differences of a few questions are noise." if n < _FEW else "."
    return [coarse + few + " One seed, one run: the standard errors are over questions only."]
