"""MPU's server, without Flower: weights, rounds, copies, sums, and what is kept to go on.

A round publishes its copies one by one and takes in, after each, what all clients made of it; one
published copy and one float32 sum are in memory beside the weights. After every copy the state can
be written, and a run that is killed goes on with the same bits.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedunlearn.copies.factory import CopyFactory, Factors, digest
from fedunlearn.copies.harmonic import DisplacementSum, FactorSum
from fedunlearn.copies.plan import CopyPlan
from fedunlearn.copies.schemes import CleanRound, MpuRound, NoisedRound, OpenRound, Scheme
from fedunlearn.copies.secret import RoundSecret
from fedunlearn.copies.settings import CopySettings
from fedunlearn.copies.state import RoundsState, StateFolder
from fedunlearn.copies.update import CopyTicket, CopyUpdate
from fedunlearn.errors import RunError
from fedunlearn.models.plain_lora import read_lora
from fedunlearn.summary.layout import adapter_keys, module_name, parameter_name


@dataclass(frozen=True)
class RoundsPlan:
    """What the rounds of one arm are.

    Attributes:
        name: of the arm.
        scheme: MPU or a baseline.
        rounds: R.
        copies: of a round.
        adapters: clients send factors of adapters, not dense displacements.
        equal: clients' updates weigh the same, not by their examples.
        fingerprint: of everything else that the result depends on, e.g. the training.
    """

    name: str
    scheme: Scheme
    rounds: int
    copies: CopySettings
    adapters: bool = False
    equal: bool = False
    fingerprint: str = ""

    @property
    def copies_a_round(self) -> int:
        """How many copies are published in a round."""
        return self.copies.m if self.scheme == "mpu" else 1


@dataclass(frozen=True, eq=False)
class PublishedCopy:
    """One copy, and what it is called."""

    ticket: CopyTicket
    tensors: dict[str, Tensor]


class CopyRounds:
    """The rounds of one arm.

    Args:
        plan: what the rounds are.
        layout: of the model.
        weights: the server's by name, float32; changed at the end of every round.
        reference: the public model's.
        secret: of the copies; a stored one takes its place.
        state: where the state is kept; ``None``: nowhere.

    Attributes:
        weights: as they are after the last round that is over.
        clients: id to weight of the clients of the open round.
        facts: of every copy published so far, for the report.
    """

    def __init__(
        self,
        plan: RoundsPlan,
        layout: CopyPlan,
        weights: dict[str, Tensor],
        reference: Mapping[str, Tensor] | None,
        secret: RoundSecret,
        *,
        state: StateFolder | None = None,
    ) -> None:
        self.weights = weights
        self.clients: dict[str, float] = {}
        self.facts: tuple[dict[str, Any], ...] = ()
        self._plan, self._layout, self._reference = plan, layout, reference
        self._secret, self._state = secret, state
        self._made_from = _fingerprint(plan, weights)
        self._round, self._done = 1, 0
        self._open: OpenRound | None = None
        self._sum: DisplacementSum | FactorSum | None = None

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of every published parameter."""
        return self._layout.shapes

    @property
    def sends_adapters(self) -> bool:
        """Whether clients send factors."""
        return self._plan.adapters

    @property
    def over(self) -> bool:
        """Whether all rounds are."""
        return self._round > self._plan.rounds

    def begin(self, examples: Mapping[str, float]) -> None:
        """Say who takes part, and go on from the stored state if there is one.

        Args:
            examples: client id to its number of examples.

        Raises:
            InputError: the stored state belongs to another run.
            RunError: a client of the open round is not there, or there is none.
        """
        self.clients = {
            client: 1.0 if self._plan.equal else float(count)
            for client, count in sorted(examples.items())
        }
        if not self.clients:
            raise RunError("no client takes part, so there is nothing to unlearn")
        if self._state is not None and (stored := self._state.read(self._made_from)) is not None:
            self._go_on(self._state, stored)
        else:
            self._save()

    def _go_on(self, folder: StateFolder, stored: RoundsState) -> None:
        if lacking := sorted(stored.clients.keys() - self.clients.keys()):
            raise RunError(
                f"round {stored.server_round} of {self._plan.name!r} was begun with "
                f"{', '.join(lacking)}, who did not answer; start their nodes and go on again"
            )
        weights, sums = folder.tensors(stored)
        for name, weight in weights.items():
            self.weights[name].copy_(weight)
        self._secret = RoundSecret.from_json(stored.secret)
        self._round, self._done, self.facts = stored.server_round, stored.copies_done, stored.facts
        if stored.copies_done:
            self.clients = dict(stored.clients)
            self._new_sum().restore(sums, copies=stored.copies_done)

    def begin_again(self, *, without: Iterable[str]) -> None:
        """Drop clients and begin the open round anew; what it added up so far is void."""
        gone = set(without)
        self.clients = {one: weight for one, weight in self.clients.items() if one not in gone}
        self.facts = self.facts[: len(self.facts) - self._done]
        self._done, self._sum = 0, None
        self._save()

    def next_copy(self) -> PublishedCopy | None:
        """Make the copy that is due; ``None`` when all rounds are over.

        Raises:
            InputError: weights or reference that do not fit; see :class:`CopyFactory`.
        """
        if self.over:
            return None
        copy = self._done + 1
        tensors = dict(self._opened().publish(copy))
        ticket = CopyTicket(
            run=self._plan.name,
            server_round=self._round,
            copy=copy,
            digest=digest(tensors.items()),
        )
        return PublishedCopy(ticket, tensors)

    def take(self, ticket: CopyTicket, updates: Iterable[CopyUpdate]) -> None:
        """Add what all clients made of a copy; after the last copy, close the round.

        Args:
            ticket: of the copy that was due.
            updates: one of each client, in the order of their ids, already checked.

        Raises:
            RunError: one is missing or comes twice.
            InputError: one does not fit.
        """
        opened, copy = self._opened(), ticket.copy
        total = self._sum or self._new_sum()
        for update in updates:
            client = update.meta.client_id
            if isinstance(total, FactorSum):
                factors, scaling = _factors(update)
                undone = opened.undo_lora(copy, factors)
                total.add(copy, undone, scaling=scaling, client=client)
            else:
                total.add(copy, opened.undo(copy, update.tensors), client=client)
        facts = {"server_round": ticket.server_round, "digest": ticket.digest, **opened.facts(copy)}
        self.facts = (*self.facts, facts)
        self._done = copy
        if copy == self._plan.copies_a_round:
            self._close(opened, total)
        self._save()

    def _close(self, opened: OpenRound, total: DisplacementSum | FactorSum) -> None:
        """Add the average to the weights (eq. 13)."""
        step = self._plan.copies.eta_srv
        for name, weight in opened.start():
            self.weights[name].copy_(weight)
        for name, moved in total.moves():
            self.weights[name].add_(moved, alpha=step)
        self._round, self._done = self._round + 1, 0
        self._open = self._sum = None

    def _opened(self) -> OpenRound:
        if self._open is None:
            self._open = self._open_round()
        return self._open

    def _open_round(self) -> OpenRound:
        if self._plan.scheme == "clean":
            return CleanRound(self.weights)
        made_of = (self._layout, self._plan.copies, self.weights, self._reference, self._secret)
        if self._plan.scheme == "noised":
            return NoisedRound(*made_of, server_round=self._round)
        return MpuRound(CopyFactory(*made_of, server_round=self._round))

    def _new_sum(self) -> DisplacementSum | FactorSum:
        shares = self._opened().shares(self.clients)
        if self._plan.adapters:
            self._sum = FactorSum(shares, self._layout)
        else:
            self._sum = DisplacementSum(shares, self._layout.shapes)
        return self._sum

    def _save(self) -> None:
        if self._state is None:
            return
        state = RoundsState(
            made_from=self._made_from,
            secret=self._secret.to_json(),
            server_round=self._round,
            copies_done=self._done,
            clients=self.clients,
            facts=self.facts,
        )
        sums = self._sum.tensors() if self._sum is not None else {}
        self._state.write(state, weights=self.weights, sums=sums)


def _factors(update: CopyUpdate) -> tuple[Factors, dict[str, float]]:
    """Factors and scaling of an adapter, by module."""
    layout = read_lora(update.meta.adapter_config or {})
    factors, scaling = {}, {}
    for name in sorted({parameter_name(key) for key in update.tensors}):
        module, (key_a, key_b) = module_name(name), adapter_keys(name)
        factors[module] = update.tensors[key_a], update.tensors[key_b]
        scaling[module] = layout.scaling_of(module)
    return factors, scaling


def _fingerprint(plan: RoundsPlan, weights: Mapping[str, Tensor]) -> str:
    """Digest of what the rounds depend on."""
    text = json.dumps([repr(plan), digest(sorted(weights.items()))])
    return hashlib.sha256(text.encode()).hexdigest()
