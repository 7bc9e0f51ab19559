"""Who a summary comes from and how it was made."""

import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedunlearn.errors import SummaryError
from fedunlearn.names import LABEL_RULE, NAME_RULE, is_label, is_name, shown
from fedunlearn.roles import ROLES, Role
from fedunlearn.settings import settings

FORMAT_VERSION = 1
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LONGEST_PATH = 4096


@settings
class SummaryMeta:
    """The content of ``summary.json``.

    Attributes:
        format_version: of the summary's files.
        client_id: unique in the round; also the name of the summary's folder.
        role: ``forget`` or ``retain``.
        domain: what the data is about; forget clients of one domain are pooled.
        objective: name of the objective the client optimised.
        num_examples: records in the client's data.
        base_model: name of the base model.
        base_model_sha256: hash of what training started from, weights and expert; equal for all
            clients of a round.
        expert: name of the expert adapter that was on the base model; empty: none was.
        expert_sha256: its hash; empty: there was none.
        fisher: how the Fisher diagonal was estimated: ``num_sequences``, ``max_length``,
            ``targets``, ``batch_size``, ``dtype``, ``reference`` with the hash of its weights,
            and what it took.
            ``kept`` is the fraction of each tensor's entries that are there, the largest ones,
            if not all are: see :attr:`kept`.
        training: what training reported: steps, final loss, and what it took.
        layout_digest: :func:`~fedunlearn.summary.layout.layout_digest` of the Fisher tensors.
    """

    format_version: int = FORMAT_VERSION
    client_id: str
    role: Role
    domain: str
    objective: str
    num_examples: int
    base_model: str
    base_model_sha256: str
    expert: str = ""
    expert_sha256: str = ""
    fisher: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    layout_digest: str

    @property
    def start(self) -> str:
        """What training started from, for people, with the beginning of its hash."""
        expert = f" with expert {self.expert}" if self.expert else ""
        return f"{self.base_model}{expert} ({self.base_model_sha256[:12]})"

    @property
    def kept(self) -> float:
        """The largest alpha (eq. 3) for which the Fisher has all that is needed."""
        return float(self.fisher.get("kept", 1.0))


def read_meta(raw: Mapping[str, Any]) -> SummaryMeta:
    """Type the content of a ``summary.json``, whoever wrote it.

    Raises:
        SummaryError: a newer format, a missing or unknown key, a wrong type; the text names the
            client where it can.
    """
    who = name_client(raw.get("client_id"))
    version = raw.get("format_version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise SummaryError(
            f"{who}: summary format {shown(version)} is not the {FORMAT_VERSION} this version "
            "reads; use the same version of fedunlearn on all sides"
        )
    try:
        return TypeAdapter(SummaryMeta).validate_json(json.dumps(raw), strict=True)
    except ValidationError as fault:
        raise SummaryError(f"{who}: {_in_words(fault)}") from None


def check_meta(meta: SummaryMeta) -> None:
    """Check the values of an already typed description.

    Raises:
        SummaryError: an id that cannot name a folder, an unknown role, an empty domain, a
            malformed hash and the like.
    """
    checks = {
        "client_id": (is_name(meta.client_id), f"be {NAME_RULE}"),
        "role": (meta.role in ROLES, f"be one of {', '.join(ROLES)}"),
        "domain": (is_label(meta.domain), f"be {LABEL_RULE}"),
        "objective": (is_label(meta.objective), f"be {LABEL_RULE}"),
        "num_examples": (meta.num_examples >= 1, "be at least 1"),
        "base_model": (_names_model(meta.base_model), "name the model in printable characters"),
        "base_model_sha256": (_is_digest(meta.base_model_sha256), "be 64 hexadecimal digits"),
        "expert": (not meta.expert or _names_model(meta.expert), "name the expert, or be empty"),
        "expert_sha256": (
            _is_digest(meta.expert_sha256) if meta.expert else not meta.expert_sha256,
            "be 64 hexadecimal digits where there is an expert, else empty",
        ),
        "layout_digest": (_is_digest(meta.layout_digest), "be 64 hexadecimal digits"),
        "format_version": (meta.format_version == FORMAT_VERSION, f"be {FORMAT_VERSION}"),
    }
    for name, (good, rule) in checks.items():
        if not good:
            raise SummaryError(f"{name} must {rule}, got {shown(getattr(meta, name))}")
    kept = meta.fisher.get("kept", 1.0)
    if isinstance(kept, bool) or not isinstance(kept, int | float) or not 0.0 < kept <= 1.0:
        raise SummaryError(f"fisher.kept must be a fraction in (0, 1], got {shown(kept)}")


def name_client(client_id: object) -> str:
    """Refer to a client in an error; ids that are none are not repeated."""
    if isinstance(client_id, str) and is_name(client_id):
        return f"client {client_id!r}"
    return "a client without a valid id"


def _names_model(text: str) -> bool:
    return bool(text.strip()) and text.isprintable() and len(text) <= _LONGEST_PATH


def _is_digest(text: str) -> bool:
    return bool(_DIGEST.fullmatch(text))


def _in_words(fault: ValidationError) -> str:
    """Say the first fault of a validation."""
    error = fault.errors(include_url=False)[0]
    key = ".".join(map(str, error["loc"])) or "summary"
    if error["type"].startswith("missing"):
        return f"{key} is missing"
    if error["type"] == "unexpected_keyword_argument":
        return f"unknown key {shown(key)}"
    return f"{key}: {error['msg']}, got {shown(error['input'])}"
