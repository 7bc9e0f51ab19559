"""Compares the norms of what clients sent, and does with outliers what the run's rules say."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedunlearn.copies.update import CopyUpdate
from fedunlearn.events import EventLog
from fedunlearn.outliers import Norms, Outlier, clipping, judge, untested
from fedunlearn.rounds import RoundRules
from fedunlearn.summary import FISHER, TASK_VECTOR, ClientSummary, scaled
from fedunlearn.summary.norms import scaled_tensor

UPDATE = "update"
_WORDS = {
    "report": "it is used as it came",
    "refuse": "it is refused",
    "clip": "it is scaled down to the norm at the threshold",
}


class Outlying:
    """The outlier test of one round or copy.

    Args:
        rules: policy and threshold.
        events: gets one event for each outlier.

    Attributes:
        found: the outliers.
        warnings: one line each, and one where there was nothing to compare.
    """

    def __init__(self, rules: RoundRules, events: EventLog) -> None:
        self.found: tuple[Outlier, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self._rules, self._events = rules, events

    def judge(self, measured: Sequence[Norms], **which: object) -> Mapping[str, str]:
        """Compare, note and log.

        Args:
            measured: of all clients that delivered.
            **which: for the log: the copy, where there are several.

        Returns:
            Client id to why it is an outlier.
        """
        self.found = judge(measured, threshold=self._rules.outlier_threshold)
        policy = self._rules.outliers
        for one in self.found:
            self._events.event("outlier", **vars(one), policy=policy, **which)
        reasons = {one.client_id: str(one) for one in reversed(self.found)}
        self.warnings = (
            *(f"{_first(self.found, client)}; {_WORDS[policy]}" for client in sorted(reasons)),
            *untested(measured),
        )
        return reasons

    def clip_summary(self, summary: ClientSummary) -> ClientSummary:
        """Scale a summary's task vectors and Fishers down to the limits."""
        who = summary.meta.client_id
        return scaled(
            summary,
            vectors=clipping(self.found, who, TASK_VECTOR),
            fishers=clipping(self.found, who, FISHER),
        )

    def clip_update(self, update: CopyUpdate) -> CopyUpdate:
        """Scale an update down to the limits; of an adapter only the B of each weight."""
        factors = clipping(self.found, update.meta.client_id, UPDATE)
        if not factors:
            return update
        tensors = {
            name: one if ".lora_A." in name else scaled_tensor(one, name, factors)
            for name, one in update.tensors.items()
        }
        return replace(update, tensors=tensors)


def _first(found: Sequence[Outlier], client_id: str) -> str:
    """The first finding on a client, and how many more there are."""
    own = [one for one in found if one.client_id == client_id]
    more = f" and {len(own) - 1} more of its norms" if len(own) > 1 else ""
    return f"{own[0]}{more}"


def update_norms(update: CopyUpdate, role: str, domain: str) -> Norms:
    """Norms of an update: of the dense displacements, or of the products of LoRA factors."""
    meta = update.meta
    return Norms(meta.client_id, role, domain, {UPDATE: dict(update.norms())})
