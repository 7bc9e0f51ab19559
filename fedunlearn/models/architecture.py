"""A model without its weights: what a client that is sent weights needs to run them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoTokenizer

from fedunlearn.data.encoding import Tokenizer
from fedunlearn.errors import InputError
from fedunlearn.models.loading import (
    DTYPES,
    LoadedModel,
    ModelSettings,
    loading,
    no_progress_bars,
    resolve_device,
)

_OF_THE_COPY = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures")


@dataclass(frozen=True)
class Architecture:
    """Configuration and tokenizer of a causal language model.

    Attributes:
        config: of transformers.
        tokenizer: with a pad token.
        settings: where they came from, and what the weights will be in memory.
        sha256: of what fixes the function but for its weights: the configuration, the
            vocabulary and the chat template.
    """

    config: Any
    tokenizer: Tokenizer
    settings: ModelSettings
    sha256: str

    def with_weights(self, weights: Mapping[str, Tensor]) -> LoadedModel:
        """Build the model around ``weights``, in evaluation mode, frozen.

        Args:
            weights: every parameter by name, tied ones once. Where dtype and device are those
                of the settings, the model takes the tensors themselves.

        Raises:
            InputError: a weight is missing, left over or of another shape.
        """
        device = resolve_device(self.settings.device)
        build = cast(Any, MODEL_FOR_CAUSAL_LM_MAPPING[type(self.config)])
        try:
            with no_progress_bars():
                model, found = build.from_pretrained(
                    None,
                    config=self.config,
                    state_dict=dict(weights),
                    dtype=DTYPES[self.settings.dtype],
                    output_loading_info=True,
                )
        except (RuntimeError, ValueError) as fault:
            raise InputError(f"the weights do not fit {self.settings.path!r}: {fault}") from fault
        for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            if found[what]:
                raise InputError(
                    f"the weights do not fit {self.settings.path!r}: {what.replace('_', ' ')} "
                    f"{sorted(map(str, found[what]))[:3]}; use the same model on all sides"
                )
        model.config.name_or_path = self.settings.path
        model.requires_grad_(False).train(False).to(device)
        return LoadedModel(model, self.tokenizer, self.settings.path, self.sha256)


def load_architecture(chosen: ModelSettings) -> Architecture:
    """Load configuration and tokenizer of a folder or hub id; no weights are read.

    Raises:
        InputError: there is no such model, or it is no causal language model.
    """
    with loading(chosen) as source:
        config = AutoConfig.from_pretrained(**source)
        tokenizer = AutoTokenizer.from_pretrained(**source)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise InputError(f"model {chosen.path!r} is no causal language model of transformers")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return Architecture(config, cast(Tokenizer, tokenizer), chosen, _digest(config, tokenizer))


def _digest(config: Any, tokenizer: Any) -> str:
    fixed = {k: v for k, v in config.to_dict().items() if k not in _OF_THE_COPY}
    vocabulary = sorted(tokenizer.get_vocab().items())
    text = json.dumps([fixed, vocabulary, tokenizer.chat_template], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
