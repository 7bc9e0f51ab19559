"""What travels in a round of copies: which copy was published, and what a client made of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from fedunlearn.errors import InputError, SummaryError
from fedunlearn.models.plain_lora import LoraLayout, read_lora, refuse_other_layout
from fedunlearn.names import is_name, shown
from fedunlearn.registry import nearest
from fedunlearn.settings import settings
from fedunlearn.summary.forms import check_text
from fedunlearn.summary.layout import adapter_keys, module_name, parameter_name
from fedunlearn.tensors.low_rank import task_vector_norm
from fedunlearn.tensors.sums import norm

FORMAT_VERSION = 1


@settings
class CopyTicket:
    """Which published copy an update belongs to.

    Attributes:
        run: what the run calls the way of unlearning that the copy is a part of.
        server_round: counts from 1.
        copy: counts from 1.
        digest: SHA-256 of the copy as published.
    """

    run: str
    server_round: int
    copy: int
    digest: str

    def __str__(self) -> str:
        return f"copy {self.copy} of round {self.server_round} of {self.run!r}"


@settings
class UpdateMeta:
    """Who made an update, of which copy, and how.

    Attributes:
        format_version: of the update.
        ticket: as the server wrote it.
        client_id: unique in the federation.
        num_examples: records in the client's data.
        training: what training reported.
        adapter_config: PEFT's, where the tensors are LoRA factors; ``None``: they are dense.
    """

    format_version: int = FORMAT_VERSION
    ticket: CopyTicket
    client_id: str
    num_examples: int
    training: dict[str, Any] = field(default_factory=dict)
    adapter_config: dict[str, Any] | None = None


_META = TypeAdapter(UpdateMeta)


def encode_meta(meta: UpdateMeta) -> str:
    """Write as JSON."""
    return _META.dump_json(meta).decode()


def decode_meta(text: str) -> UpdateMeta:
    """Read from JSON, whoever wrote it.

    Raises:
        SummaryError: it is not what this version writes; the text names the key.
    """
    check_text(text, "the update's JSON")
    try:
        meta = _META.validate_json(text, strict=True)
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "update"
        raise SummaryError(f"the update's JSON: {where}: {first['msg']}") from None
    if meta.format_version != FORMAT_VERSION:
        raise SummaryError(
            f"update format {meta.format_version} is not the {FORMAT_VERSION} this version reads; "
            "use the same version of fedunlearn on all sides"
        )
    if not is_name(meta.client_id) or meta.num_examples < 1:
        raise SummaryError(f"the update comes from {shown(meta.client_id)}, which is no client id")
    return meta


@dataclass(frozen=True, eq=False)
class CopyUpdate:
    """The displacement of one client on one copy, in the coordinates of that copy.

    Attributes:
        meta: who, which, how.
        tensors: trained minus published weights by parameter name, float32; or, with
            ``meta.adapter_config``, the factors by PEFT key.
    """

    meta: UpdateMeta
    tensors: Mapping[str, Tensor]

    def check(
        self, shapes: Mapping[str, tuple[int, ...]], *, asked: Mapping[str, Any] | None = None
    ) -> None:
        """Check every tensor against the shapes of the published weights.

        Args:
            shapes: of the published weights.
            asked: ranks and scalings that an adapter must have; ``None``: any.

        Raises:
            SummaryError: a key that was not published or is missing, another shape, an entry
                that is not finite, or an update that is zero everywhere; the text names the
                client and the tensor.
        """
        try:
            if not self.tensors:
                raise SummaryError("it has no tensor")
            self._check_names(shapes, asked)
            for name, tensor in self.tensors.items():
                if not bool(tensor.isfinite().all()):
                    raise SummaryError(f"{name!r} has an entry that is not finite")
            if not self._moved():
                raise SummaryError("it is exactly zero: training did not reach the model")
        except InputError as fault:
            who, which = self.meta.client_id, self.meta.ticket
            raise SummaryError(f"the update of client {who!r} for {which}: {fault}") from None

    def norms(self) -> Iterator[tuple[str, float]]:
        """Euclidean norm of every displacement; of an adapter's product, under the name of B."""
        if self.meta.adapter_config is None:
            yield from ((name, norm(tensor)) for name, tensor in self.tensors.items())
            return
        lora = read_lora(self.meta.adapter_config)
        for name in sorted({parameter_name(key) for key in self.tensors}):
            key_a, key_b = adapter_keys(name)
            scaling = lora.scaling_of(module_name(name))
            yield key_b, task_vector_norm(self.tensors[key_a], self.tensors[key_b], scaling)

    def _check_names(
        self, shapes: Mapping[str, tuple[int, ...]], asked: Mapping[str, Any] | None
    ) -> None:
        if self.meta.adapter_config is not None:
            refuse_other_layout(self.meta.adapter_config, asked or {})
            self._check_factors(read_lora(self.meta.adapter_config), shapes)
            return
        for name, tensor in self.tensors.items():
            _check_published(name, shapes)
            if tuple(tensor.shape) != shapes[name]:
                raise SummaryError(
                    f"{name!r} has shape {tuple(tensor.shape)}, published was {shapes[name]}"
                )
        for name in sorted(shapes.keys() - self.tensors.keys()):
            raise SummaryError(f"{name!r} is missing")

    def _check_factors(self, lora: LoraLayout, shapes: Mapping[str, tuple[int, ...]]) -> None:
        for name in sorted({parameter_name(key) for key in self.tensors}):
            _check_published(name, shapes)
            keys = adapter_keys(name)
            for key in sorted(set(keys) - self.tensors.keys()):
                raise SummaryError(f"adapter tensor {key!r} is missing")
            A, B = (self.tensors[key] for key in keys)
            rank = lora.rank_of(module_name(name))
            if A.ndim != 2 or B.ndim != 2 or (A.shape[0], B.shape[1]) != (rank, rank):
                raise SummaryError(
                    f"{name!r} has factors A {tuple(A.shape)} and B {tuple(B.shape)}, but its "
                    f"adapter_config gives it rank {rank}"
                )
            dense = (A.shape[1], B.shape[0]) if lora.transposed else (B.shape[0], A.shape[1])
            if dense != shapes[name]:
                raise SummaryError(
                    f"the adapter of {name!r} has shape {dense}, published was {shapes[name]}"
                )

    def _moved(self) -> bool:
        """Whether anything changed; an adapter whose every B is zero changes nothing."""
        keys = [key for key in self.tensors if ".lora_A." not in key]
        return any(bool(self.tensors[key].count_nonzero()) for key in keys)


def _check_published(name: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    if name not in shapes:
        raise SummaryError(f"{shown(name)} was not published{nearest(name, [*shapes])}")
