"""What a sweep makes: every method at every alpha, budget and gamma, one merge a point."""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import Any

from fedunlearn.aggregation import (
    Epsilon,
    MergeSettings,
    PerClientEpsilon,
    RelativeEpsilon,
    parse_epsilon,
)
from fedunlearn.errors import InputError
from fedunlearn.merging import MERGE_METHODS
from fedunlearn.registry import nearest
from fedunlearn.settings import settings

MOST = 10_000
"""Numbers that one range may stand for; more are taken for a slip."""

BUDGET_GAMMA = 1.0
"""The gamma at which a relative budget is resolved, once for all points."""

_DEFAULTS = MergeSettings()


@settings
class Point:
    """One merge of a sweep.

    Attributes:
        merge: its settings, every hyperparameter of the method written out.
        domains: forget domains whose clients take part, sorted: the merge knows no other order.
    """

    merge: MergeSettings
    domains: tuple[str, ...]

    @property
    def variant(self) -> str:
        """The point without its gamma and domains, as people name it.

        The method, then what differs from the defaults: ``firm``, ``firm eps=4.1e-05``,
        ``ties:density=0.3 alpha=0.2``.
        """
        merge = self.merge
        parts = [":".join([merge.method, *_changed_options(merge)])]
        parts += [
            f"{name}={getattr(merge, name):.6g}" if name != "solver" else merge.solver
            for name in ("alpha", "eps0", "solver")
            if getattr(merge, name) != getattr(_DEFAULTS, name)
        ]
        if merge.epsilon != _DEFAULTS.epsilon:
            parts.append(f"eps={_epsilon_text(merge.epsilon)}")
        return " ".join(parts)

    @property
    def unprojected(self) -> "Point":
        """The same merge without a budget."""
        return replace(self, merge=replace(self.merge, epsilon=math.inf))

    @property
    def key(self) -> str:
        """Everything the merge depends on beside the summaries, as canonical JSON."""
        return json.dumps(asdict(self), sort_keys=True, default=str)

    @property
    def file_name(self) -> str:
        """A name for the point's file, readable and unique."""
        digest = hashlib.sha256(self.key.encode()).hexdigest()[:10]
        stem = re.sub(r"[^A-Za-z0-9.=-]+", "_", self.variant)[:80]
        return f"{stem}_gamma={self.merge.gamma:g}_{digest}.json"


def parse_numbers(name: str, text: str) -> list[float]:
    """Read numbers and ranges such as ``0.1:2.5:0.1,4``.

    A range counts from its start in steps to its stop, which is part of it where a step lands
    on it. The arithmetic is decimal: the numbers are those one would type.

    Args:
        name: what they are, for errors.
        text: ``number`` or ``start:stop:step`` each, separated by commas.

    Returns:
        Rising, none twice.

    Raises:
        InputError: not a number, not positive, a step that leads nowhere, too many.
    """
    found = {float(value) for part in text.split(",") for value in _range(f"{name} {part!r}", part)}
    return sorted(found)


def _range(where: str, part: str) -> list[Decimal]:
    numbers = [_decimal(where, piece) for piece in part.split(":")]
    if len(numbers) == 1:
        return numbers
    if len(numbers) != 3:
        raise InputError(f"{where}: expected a number or start:stop:step, e.g. 0.1:2.5:0.1")
    start, stop, step = numbers
    if stop < start:
        raise InputError(f"{where}: the stop is below the start")
    if (count := int((stop - start) / step) + 1) > MOST:
        raise InputError(f"{where}: stands for {count} numbers, more than {MOST}; widen the step")
    return [start + place * step for place in range(count)]


def _decimal(where: str, text: str) -> Decimal:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        raise InputError(f"{where}: {text.strip()!r} is not a number") from None
    if not (value.is_finite() and value > 0 and 0 < float(value) < math.inf):
        raise InputError(f"{where}: expected a finite number > 0, got {text.strip()}")
    return value


def parse_epsilons(text: str) -> list[Epsilon]:
    """Read budgets separated by commas: ``inf``, a number, ``relative:0.3``.

    A budget per client holds commas itself; several of them are separated by semicolons.

    Raises:
        InputError: a budget that is none.
    """
    separator = ";" if "=" in text or ";" in text else ","
    found: list[Epsilon] = []
    for epsilon in (parse_epsilon(part.strip()) for part in text.split(separator)):
        if epsilon not in found:
            found.append(epsilon)
    return found


def parse_methods(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Read methods separated by commas, each with options: ``firm,ties:density=0.3``.

    Returns:
        Name and all hyperparameters of each, those left at their defaults too; none twice.

    Raises:
        InputError: an unknown method or option, with the nearest name, or a bad value.
    """
    found: list[tuple[str, dict[str, Any]]] = []
    for part in text.split(","):
        name, *options = (piece.strip() for piece in part.split(":"))
        built = MERGE_METHODS.build(name, dict(_option(part, option) for option in options))
        chosen = (name, {one.name: getattr(built, one.name) for one in fields(built)})  # type: ignore[arg-type]
        if chosen not in found:
            found.append(chosen)
    return found


def parse_domains(text: str, known: Sequence[str]) -> list[tuple[str, ...]]:
    """Read the order in which forget domains join, and list the growing subsets.

    Args:
        text: domains separated by commas, or ``all`` for every one in alphabetical order.
        known: forget domains of the summaries.

    Returns:
        The first domain alone, the first two, and so on; each subset sorted.

    Raises:
        InputError: an unknown domain, or one that comes twice.
    """
    order = sorted(known) if text == "all" else [part.strip() for part in text.split(",")]
    for place, domain in enumerate(order):
        if domain not in known:
            raise InputError(
                f"--domains: no forget client has {domain!r}{nearest(domain, [*known])}"
            )
        if domain in order[:place]:
            raise InputError(f"--domains: {domain!r} comes twice")
    return [tuple(sorted(order[: count + 1])) for count in range(len(order))]


def plan(
    methods: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    gammas: Sequence[float],
    epsilons: Sequence[Epsilon],
    alphas: Sequence[float],
    subsets: Sequence[tuple[str, ...]],
    common: MergeSettings = _DEFAULTS,
) -> list[Point]:
    """List every combination, in the order that shares most of the work.

    What is computed once comes outermost: the clients, their Fishers at an alpha, a method's
    raw merge; then budgets, no budget first, and gammas rising, so that each projection has a
    neighbour. A method that reads no Fisher comes at one alpha only where there is no budget:
    the others would be the same merge.

    Raises:
        InputError: a setting out of its range.
    """
    budgets = sorted(epsilons, key=lambda epsilon: epsilon != math.inf)
    try:
        return [
            Point(
                merge=replace(
                    common,
                    method=name,
                    options=dict(options),
                    alpha=alpha,
                    epsilon=epsilon,
                    gamma=gamma,
                ),
                domains=domains,
            )
            for domains, alpha, (name, options), epsilon, gamma in product(
                subsets, alphas, methods, budgets, sorted(gammas)
            )
            if alpha == alphas[0] or epsilon != math.inf or MERGE_METHODS[name].needs_fisher
        ]
    except ValueError as fault:
        raise InputError(str(fault)) from None


def _option(part: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"method {part.strip()!r}: expected name:option=value, got {text!r}")
    return key, value


def _changed_options(merge: MergeSettings) -> Iterator[str]:
    kind = MERGE_METHODS[merge.method]
    defaults = {one.name: one.default for one in fields(kind)}  # type: ignore[arg-type]
    for name, value in merge.options.items():
        if value != defaults.get(name):
            shown = f"{value:.6g}" if isinstance(value, float) else str(value)
            yield f"{name}={shown.lower() if isinstance(value, bool) else shown}"


def _epsilon_text(epsilon: Epsilon) -> str:
    if isinstance(epsilon, RelativeEpsilon):
        return f"relative:{epsilon.relative:.6g}"
    if isinstance(epsilon, PerClientEpsilon):
        return ",".join(f"{client}={value:.6g}" for client, value in epsilon.per_client.items())
    return f"{epsilon:.6g}"
