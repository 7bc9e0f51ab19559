"""A pocket-sized world for tests: a tiny model on its own tokenizer, made in a second."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

from fedunlearn.data.records import Question
from fedunlearn.data.world import WorldSize
from fedunlearn.data.world.facts import DOMAINS, invent_facts
from fedunlearn.models.loading import LoadedModel, fingerprint
from fedunlearn.models.tiny import TinySize, build_model, train_tokenizer
from fedunlearn.training.teaching import WorldSettings, ensure_world

POCKET = TinySize(
    hidden_size=32, layers=2, heads=4, key_value_heads=2, feed_forward=48, vocabulary=400
)
POCKET_WORLD = WorldSize(
    forget_clients=2,
    entities_per_client=2,
    retain_entities=4,
    utility_entities=2,
    nature_entities=4,
)


@cache
def questions(count: int = 12) -> tuple[Question, ...]:
    """Some of the world's questions."""
    facts = invent_facts(DOMAINS["geography"], num_entities=max(4, count // 2), seed=5)
    return tuple(fact.question for fact in facts[:count])


def pocket_model(*, seed: int = 0, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """A fresh, untrained pocket model with a real tokenizer; nobody shares it."""
    texts = [text for q in questions() for text in (q.question, q.answer)]
    tokenizer = train_tokenizer(texts, vocabulary=POCKET.vocabulary)
    model = build_model(tokenizer, POCKET, seed=seed).to(dtype).eval().requires_grad_(False)
    return LoadedModel(model, tokenizer, "pocket", fingerprint(model))


@contextmanager
def checkpointed(model: Any) -> Iterator[None]:
    """Checkpointing on and off, under whichever name this transformers has for it."""
    word = "activation" if hasattr(model, "activation_checkpointing_disable") else "gradient"
    getattr(model, f"{word}_checkpointing_enable")()
    assert any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    yield
    getattr(model, f"{word}_checkpointing_disable")()


def pocket_world(directory: Path, *, epochs: int = 1) -> Path:
    """Files and model of a pocket world below ``directory``."""
    return ensure_world(
        WorldSettings(
            directory=str(directory), size=POCKET_WORLD, model=POCKET, epochs=epochs, threads=1
        )
    )
