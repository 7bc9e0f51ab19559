"""Who takes part in a round, who delivered, and whether the round may go on without the rest.

Pure bookkeeping: no Flower, no tensors, no clock. A round has two halves. In the *handshake*
every node says who it is (:class:`Hello`) and :func:`build_roster` checks what they say against
each other and against the clients the run expects. In the *training* half each client of the
:class:`Roster` owes one summary; :class:`RoundOutcome` says what came and :func:`decide` whether
that is enough.

A node may hold several clients, e.g. one that forgets in one domain and one that retains in
another. Each has an id, a role and a domain of its own, is asked on its own and answers on its own:
an :class:`Addressee` is a client at a node.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from fedunlearn.errors import RunError
from fedunlearn.roles import ROLES

OutlierPolicy = Literal["report", "refuse", "clip"]
UNKNOWN_ROLE = "unknown role"
UNKNOWN_DOMAIN = "unknown domain"
NOT_THERE = "no node answered the handshake for it in time; is its SuperNode running?"


class Identity(Protocol):
    """What names a client: its id, its role and its domain."""

    @property
    def id(self) -> str:
        """Unique in the federation."""

    @property
    def role(self) -> str:
        """``forget`` or ``retain``."""

    @property
    def domain(self) -> str:
        """What the client's data is about."""


@dataclass(frozen=True)
class RoundRules:
    """How long to wait, and for whom.

    Attributes:
        nodes_s: seconds until every node is there.
        handshake_s: seconds until every node has said who it is.
        deadline_s: seconds until every client has delivered.
        allow_partial: go on without those that did not.
        min_forget_per_domain: clients that every forget domain must have in the result.
        require_all_retain: every retain client must be in the result, also of a partial round.
        outliers: what becomes of a client whose norms are unlike the others', see
            :mod:`fedunlearn.outliers`.
        outlier_threshold: of the modified z-score.
        max_upload_bytes: that a client may send; ``None``: as many as it takes.
    """

    nodes_s: float
    handshake_s: float
    deadline_s: float
    allow_partial: bool = False
    min_forget_per_domain: int = 0
    require_all_retain: bool = False
    outliers: OutlierPolicy = "report"
    outlier_threshold: float = 3.5
    max_upload_bytes: int | None = None


@dataclass(frozen=True)
class Addressee:
    """Where a message goes.

    Attributes:
        node_id: Flower's number for the node.
        client_id: whom of the node's clients it is for; empty when it is for the node itself.
    """

    node_id: int
    client_id: str = ""


@dataclass(frozen=True)
class Hello:
    """What a client says in the handshake, as its node gave it.

    Attributes:
        node_id: Flower's number for the node.
        client_id, role, domain: from the node's own configuration.
        num_examples: questions in the client's data file.
        base_model: name of the base model the node loaded, with its expert where it has one.
        base_model_sha256: hash of both.
        data_digest: of the client's records, keyed with the run's salt: the same data has another
            digest in every run.
    """

    node_id: int
    client_id: str
    role: str
    domain: str
    num_examples: int
    base_model: str
    base_model_sha256: str
    data_digest: str = ""

    @property
    def addressee(self) -> Addressee:
        """Where this client's messages go."""
        return Addressee(self.node_id, self.client_id)

    def failure(self, reason: str) -> "ClientFailure":
        """Say that this client failed."""
        return ClientFailure(self.client_id, self.role, self.domain, reason)


@dataclass(frozen=True)
class ClientFailure:
    """A client that owes its part of the round, and why."""

    client_id: str
    role: str
    domain: str
    reason: str

    def __str__(self) -> str:
        head = f"{self.role} client {self.client_id!r} ({self.domain}): "
        other_head = f"client {self.client_id!r} ({self.role}, {self.domain}): "
        return head + self.reason.removeprefix(head).removeprefix(other_head)

    @property
    def consequence(self) -> str:
        """What the model is like without this client."""
        fate = {"forget": "is not unlearned", "retain": "is not protected"}.get(
            self.role, "is left out"
        )
        return f"the data of {self.client_id!r} in {self.domain!r} {fate}"


@dataclass(frozen=True)
class Roster:
    """The clients of a round, in the order of their ids."""

    hellos: tuple[Hello, ...]

    @property
    def addressees(self) -> tuple[Addressee, ...]:
        """Clients to ask, in the order of their ids, so that every run asks alike."""
        return tuple(hello.addressee for hello in self.hellos)

    def find(self, addressee: Addressee) -> Hello | None:
        """Return the client at an address, if there is one."""
        return next((hello for hello in self.hellos if hello.addressee == addressee), None)

    def is_pooled(self, addressee: Addressee) -> bool:
        """Whether a client shares its forget domain with another (eq. 2)."""
        client = self.find(addressee)
        alike = [
            hello
            for hello in self.hellos
            if client and hello.role == client.role == "forget" and hello.domain == client.domain
        ]
        return len(alike) > 1

    def lacking(self, received: Container[str]) -> tuple[str, ...]:
        """Say which role none of the ``received`` clients has, and what the merge does then."""
        present = {hello.role for hello in self.hellos if hello.client_id in received}
        effects = {
            "forget": "no forget client takes part: nothing is unlearned",
            "retain": "no retain client takes part: nothing constrains the forget update",
        }
        return tuple(text for role, text in effects.items() if role not in present)


def _groups(hellos: Iterable[Hello], attribute: str) -> dict[Hashable, list[Hello]]:
    groups: dict[Hashable, list[Hello]] = defaultdict(list)
    for hello in hellos:
        groups[getattr(hello, attribute)].append(hello)
    return groups


def _duplicate_faults(hellos: Sequence[Hello]) -> list[str]:
    return [
        f"client id {client_id!r} is used by {len(same)} clients "
        f"({', '.join(f'{h.role}/{h.domain} at node {h.node_id}' for h in same)}): "
        "give each its own id"
        for client_id, same in _groups(hellos, "client_id").items()
        if len(same) > 1
    ]


def _role_faults(hellos: Sequence[Hello]) -> list[str]:
    return [
        f"client {h.client_id!r}: unknown role {h.role!r}, expected one of {', '.join(ROLES)}"
        for h in hellos
        if h.role not in ROLES
    ]


def _model_faults(hellos: Sequence[Hello]) -> list[str]:
    by_hash = _groups(hellos, "base_model_sha256")
    if len(by_hash) < 2:
        return []
    versions = "; ".join(
        f"{str(digest)[:12]} ({same[0].base_model}) at {', '.join(h.client_id for h in same)}"
        for digest, same in by_hash.items()
    )
    return [f"clients start from different base models: {versions}: install the same one on all"]


def _expectation_faults(hellos: Sequence[Hello], expected: Sequence[Identity]) -> list[str]:
    wanted = {identity.id: identity for identity in expected}
    faults = []
    for hello in hellos:
        if (identity := wanted.get(hello.client_id)) is None:
            faults.append(f"client {hello.client_id!r} is not in this run's list of clients")
        elif (hello.role, hello.domain) != (identity.role, identity.domain):
            faults.append(
                f"client {hello.client_id!r}: its node says {hello.role}/{hello.domain}, "
                f"the run expects {identity.role}/{identity.domain}"
            )
    return faults


def build_roster(hellos: Iterable[Hello], expected: Sequence[Identity] = ()) -> Roster:
    """Check the handshake and return who takes part.

    Args:
        hellos: the answers, in any order.
        expected: the clients of the run; empty to accept whoever answers.

    Raises:
        RunError: an id used twice, an unknown role, different base models, or a client that is
            not as expected. All faults are listed, each with its client.
    """
    ordered = sorted(hellos, key=lambda hello: (hello.client_id, hello.node_id))
    faults = [*_duplicate_faults(ordered), *_role_faults(ordered), *_model_faults(ordered)]
    if expected:
        faults += _expectation_faults(ordered, expected)
    if faults:
        raise RunError("the clients' handshake failed:\n  " + "\n  ".join(faults))
    return Roster(tuple(ordered))


def absent(roster: Roster, expected: Sequence[Identity], reason: str) -> tuple[ClientFailure, ...]:
    """Name the expected clients that are not on the roster."""
    present = {hello.client_id for hello in roster.hellos}
    return tuple(
        ClientFailure(identity.id, identity.role, identity.domain, reason)
        for identity in sorted(expected, key=lambda identity: identity.id)
        if identity.id not in present
    )


def strangers(roster: Roster, *, answered: int, wanted: int) -> tuple[ClientFailure, ...]:
    """List the clients that a run without a list of clients lacks; nobody knows their names.

    Args:
        roster: who takes part.
        answered: how many answered the handshake, be it with a failure.
        wanted: how many the run expects.

    Raises:
        RunError: more answered than are wanted.
    """
    if answered > wanted:
        ids = ", ".join(hello.client_id for hello in roster.hellos)
        raise RunError(
            f"{answered} clients answered the handshake ({ids}), the run expects {wanted}: stop "
            f"those that do not belong to it, or set federation.expected_clients={answered}"
        )
    return tuple(
        ClientFailure(f"client {number} of {wanted}", UNKNOWN_ROLE, UNKNOWN_DOMAIN, NOT_THERE)
        for number in range(answered + 1, wanted + 1)
    )


@dataclass(frozen=True)
class RoundOutcome:
    """What came of a round.

    Attributes:
        received: ids of the clients whose summaries are valid and stored, sorted.
        failed: clients that answered with an error, or with a summary that was refused.
        missing: clients that did not answer in time.
        notes: what holds for the roster as a whole, e.g. that no retain client took part.
    """

    received: tuple[str, ...]
    failed: tuple[ClientFailure, ...] = ()
    missing: tuple[ClientFailure, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def absentees(self) -> tuple[ClientFailure, ...]:
        """Failed and missing clients, in the order of their ids."""
        return tuple(sorted((*self.failed, *self.missing), key=lambda f: (f.client_id, f.reason)))


def decide(outcome: RoundOutcome, *, allow_partial: bool) -> tuple[str, ...]:
    """Let the round go on, or stop it.

    Args:
        outcome: what came.
        allow_partial: go on without the clients that failed, as long as one delivered.

    Returns:
        Warnings for the report: which client's data is not unlearned or not protected, and why.

    Raises:
        RunError: a client failed and ``allow_partial`` is off, or no client delivered. The text
            names every absent client with its role, domain and reason.
    """
    absentees = outcome.absentees
    if not outcome.received:
        raise RunError(_refusal("no client delivered a summary", absentees))
    if absentees and not allow_partial:
        total = len(outcome.received) + len(absentees)
        head = f"{len(absentees)} of {total} clients did not deliver; no model is written"
        raise RunError(
            _refusal(head, absentees) + "\nset federation.allow_partial=true to go on without them"
        )
    return (*(f"{failure}; {failure.consequence}" for failure in absentees), *outcome.notes)


def check_policy(
    delivered: Iterable[Hello], absentees: Iterable[ClientFailure], rules: RoundRules
) -> None:
    """Stop a round that goes on without some clients, if too few are left of one kind.

    Args:
        delivered: whose part is, or may still come to be, in the result.
        absentees: whose part is not.
        rules: of the run.

    Raises:
        RunError: a forget domain has fewer clients than ``min_forget_per_domain``, or
            ``require_all_retain`` is set and a retain client is absent. All faults are listed.
    """
    gone = tuple(absentees)
    domains = Counter({failure.domain: 0 for failure in gone if failure.role == "forget"})
    domains.update(hello.domain for hello in delivered if hello.role == "forget")
    faults = [
        f"forget domain {domain!r} has {count} clients, federation.min_forget_per_domain is "
        f"{rules.min_forget_per_domain}"
        for domain, count in sorted(domains.items())
        if count < rules.min_forget_per_domain
    ]
    if rules.require_all_retain:
        faults += [f"{one}; federation.require_all_retain" for one in gone if one.role == "retain"]
    if faults:
        raise RunError("\n  ".join(["the run's policy is not met; no model is written", *faults]))


def odd_layouts(digests: Mapping[str, str]) -> tuple[str, ...]:
    """Name the clients whose adapted weights are not those that most clients adapted.

    Args:
        digests: client id to the layout digest of its summary.

    Returns:
        Sorted ids of the minority; empty when all agree.

    Raises:
        RunError: there is no majority.
    """
    votes = Counter(digests.values()).most_common()
    if len(votes) > 1 and votes[0][1] == votes[1][1]:
        pairs = ", ".join(f"{client}: {digest[:12]}" for client, digest in sorted(digests.items()))
        raise RunError(f"the clients adapted different weights, with no majority: {pairs}")
    return tuple(sorted(client for client, digest in digests.items() if digest != votes[0][0]))


def _refusal(head: str, failures: Iterable[ClientFailure]) -> str:
    return "\n  ".join([head, *(str(failure) for failure in failures)])
