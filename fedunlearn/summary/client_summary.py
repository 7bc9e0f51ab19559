"""The summary itself: a client's LoRA factors, its Fisher diagonal, and where they come from."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from fedunlearn.errors import InputError, SummaryError
from fedunlearn.models.plain_lora import LoraLayout, read_lora
from fedunlearn.names import printable
from fedunlearn.summary.checks import check_keys, check_tensors
from fedunlearn.summary.layout import adapter_keys, digest_lines, module_name
from fedunlearn.summary.meta import SummaryMeta, check_meta, name_client
from fedunlearn.tensors.low_rank import task_vector


@dataclass(frozen=True)
class ClientSummary:
    """One client's contribution. Its tensors may be in memory or read from disk when asked for.

    Attributes:
        meta: who and how.
        adapter_config: content of PEFT's ``adapter_config.json``.
        adapter: PEFT state-dict key, as stock PEFT saves it, to LoRA factor: A is (r, d_in), B
            is (d_out, r).
        fisher: base parameter name to the raw Fisher diagonal, of the base weight's shape
            (d_out, d_in), bfloat16, non-negative.
    """

    meta: SummaryMeta
    adapter_config: Mapping[str, Any]
    adapter: Mapping[str, Tensor]
    fisher: Mapping[str, Tensor]

    @property
    def label(self) -> str:
        """The client as errors name it, with its role and domain."""
        who = name_client(self.meta.client_id)
        return f"{who} ({printable(self.meta.role)}, {printable(self.meta.domain)})"

    @cached_property
    def lora(self) -> LoraLayout:
        """Ranks and scalings.

        Raises:
            SummaryError: the adapter is no plain LoRA.
        """
        try:
            return read_lora(self.adapter_config)
        except InputError as fault:
            raise SummaryError(f"{self.label}: {fault}") from None

    def weights(self) -> list[str]:
        """Base parameter names of the adapted weights, sorted."""
        return sorted(self.fisher)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Base parameter names of the adapted weights, sorted, to their shapes."""
        return {name: tuple(self.fisher[name].shape) for name in self.weights()}

    def task_vector(self, name: str) -> Tensor:
        """Return the dense update ``s * B @ A`` of one weight.

        Returns:
            float32, of the base weight's shape (d_out, d_in).

        Raises:
            SummaryError: this client did not adapt that weight.
        """
        A, B, scaling = self._lora_of(name)
        return task_vector(A, B, scaling, transposed=self.lora.transposed)

    def factors(self, name: str) -> tuple[Tensor, Tensor]:
        """Return :meth:`task_vector` as a product of two matrices of the adapter's rank.

        Returns:
            (d_out, r) and (r, d_in), float32, the scaling in the first.

        Raises:
            SummaryError: this client did not adapt that weight.
        """
        A, B, scaling = self._lora_of(name)
        left, right = (A.T, B.T) if self.lora.transposed else (B, A)
        return left.float() * scaling, right.float()

    def _lora_of(self, name: str) -> tuple[Tensor, Tensor, float]:
        """A, B and the scaling of one weight's adapter."""
        if name not in self.fisher:
            raise SummaryError(f"{self.label}: {name!r} carries no adapter")
        key_a, key_b = adapter_keys(name)
        return self.adapter[key_a], self.adapter[key_b], self.lora.scaling_of(module_name(name))

    def validate(self) -> None:
        """Refuse what must not be merged; reads every tensor once, one weight at a time.

        Raises:
            SummaryError: names the client, the tensor and the fault.
        """
        lora = self.lora
        try:
            check_meta(self.meta)
            check_keys(self.adapter.keys(), self.fisher.keys())
            digest = digest_lines(check_tensors(self.adapter, self.fisher, lora))
            if digest != self.meta.layout_digest:
                raise SummaryError(
                    f"layout digest {self.meta.layout_digest[:12]} does not fit its tensors "
                    f"({digest[:12]}): weights were lost or added on the way"
                )
        except SummaryError as fault:
            raise SummaryError(f"{self.label}: {fault}") from None
