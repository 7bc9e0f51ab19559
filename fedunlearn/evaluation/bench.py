"""A model on the bench: what tasks may ask of it, and which model, tokenizer and template it is."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from fedunlearn.data.encoding import Example, Tokenizer
from fedunlearn.evaluation.gradients import gradient_norms
from fedunlearn.evaluation.observing import Padding, Query, by_length, observe, query
from fedunlearn.metrics import Observed
from fedunlearn.models.generation import generate_greedily
from fedunlearn.models.loading import LoadedModel


@dataclass(frozen=True)
class Bench:
    """A live model and how it is run; none of this changes a result by more than rounding.

    Attributes:
        base: the model that is measured.
        batch_size: sequences a forward pass.
        padding: side on which short sequences are filled.
        reference: a model that has not seen the texts, for the attack ``reference``.
    """

    base: LoadedModel
    batch_size: int = 32
    padding: Padding = "right"
    reference: LoadedModel | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's."""
        return self.base.tokenizer

    def observe(self, examples: Sequence[Example], *, moments: bool = False) -> list[Observed]:
        """Observe texts, each once."""
        return self.ask([query(one) for one in examples], moments=moments)

    def ask(self, queries: Sequence[Query], *, moments: bool = False) -> list[Observed]:
        """Observe queries, each once."""
        return observe(
            self.base,
            queries,
            batch_size=self.batch_size,
            moments=moments,
            padding=self.padding,
        )

    def attacked(self, examples: Sequence[Example], *, gradients: bool) -> list[Observed]:
        """Observe all that membership attacks ask for."""
        seen = self.observe(examples, moments=True)
        if self.reference is not None:
            asked = [query(one) for one in examples]
            other = observe(self.reference, asked, batch_size=self.batch_size)
            seen = [
                replace(one, reference_loss=theirs.loss)
                for one, theirs in zip(seen, other, strict=True)
            ]
        if gradients:
            norms = [gradient_norms(self.base, example) for example in examples]
            seen = [
                replace(one, gradient_norms=norm) for one, norm in zip(seen, norms, strict=True)
            ]
        return seen

    def generate(self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int) -> list[str]:
        """Greedy answers, in batches of similar length."""
        answers = [""] * len(prompts)
        for part in by_length([len(prompt) for prompt in prompts], self.batch_size):
            texts = generate_greedily(
                self.base.model,
                self.tokenizer,
                [prompts[place] for place in part],
                max_new_tokens=max_new_tokens,
            )
            for place, text in zip(part, texts, strict=True):
                answers[place] = text
        return answers


@dataclass(frozen=True)
class ModelIdentity:
    """Which model was measured; equal identities have equal results.

    Attributes:
        name: hub id or path, for people.
        sha256: of its weights, an update or adapter that was put on included.
        dtype: of its weights.
        tokenizer_sha256: of the tokenizer.
        template_sha256: of the chat template; ``None`` without one.
        update: the merge or adapter that was put on; ``None`` without one.
    """

    name: str
    sha256: str
    dtype: str
    tokenizer_sha256: str
    template_sha256: str | None
    update: str | None = None


def identify(base: LoadedModel, *, update: str | None = None) -> ModelIdentity:
    """Say which model this is.

    Args:
        base: its ``sha256`` must be that of the weights as they are now.
        update: what was put on.
    """
    template = base.tokenizer.chat_template
    return ModelIdentity(
        name=base.name,
        sha256=base.sha256,
        dtype=str(base.model.dtype).removeprefix("torch."),
        tokenizer_sha256=_digest(_tokenizer_text(base.tokenizer)),
        template_sha256=None if not template else _digest(str(template)),
        update=update,
    )


def _tokenizer_text(tokenizer: Tokenizer) -> str:
    """All that decides about token ids: the fast tokenizer's own file, or the vocabulary."""
    inner = getattr(tokenizer, "backend_tokenizer", None)
    if inner is not None:
        return str(inner.to_str())
    return json.dumps(cast(Any, tokenizer).get_vocab(), sort_keys=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
