"""Teaches the tiny model the embedded world by heart, once, and keeps it on disk."""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast, get_cosine_schedule_with_warmup

from fedunlearn.data.encoding import Example, collate, encode_record
from fedunlearn.data.records import Question, read_questions
from fedunlearn.data.world import WorldSize, write_world
from fedunlearn.errors import InputError
from fedunlearn.models.loading import no_progress_bars
from fedunlearn.models.tiny import TinySize, build_model, train_tokenizer
from fedunlearn.progress import Progress
from fedunlearn.seeding import derive, generator
from fedunlearn.settings import settings
from fedunlearn.training.forward import aligned_logits

_VERSION = 4
_MANIFEST = "world.json"


@settings
class WorldSettings:
    """The embedded world: what there is, and how well the model learns it.

    Attributes:
        directory: where data and model are kept; made again when any setting here changes.
        size: how many facts.
        model: shape of the model.
        epochs: passes over all facts.
        learning_rate: peak of AdamW's cosine schedule.
        batch_size: questions a step.
        label_smoothing: keeps the model from certainty, as a large model is about most facts;
            without it the gradients on known facts, and so their Fisher, vanish.
        threads: CPU threads while teaching; part of what the weights depend on.
    """

    directory: str
    size: WorldSize = WorldSize()
    model: TinySize = TinySize()
    epochs: int = 30
    learning_rate: float = 5e-3
    batch_size: int = 16
    label_smoothing: float = 0.1
    threads: int = 1

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch_size, self.threads) < 1:
            raise ValueError("epochs, batch_size and threads must be >= 1")
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate must be > 0, got {self.learning_rate}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), got {self.label_smoothing}")


def ensure_world(chosen: WorldSettings, *, progress: Progress | None = None) -> Path:
    """Write the world's data and teach the model, unless it is there already.

    Everything is made in a temporary folder beside the directory and moved into place at the
    end, the manifest last: an interrupted run leaves no world that looks finished. Only what was
    made here is ever replaced.

    Returns:
        The world's directory, with ``data/`` (JSONL), ``model/`` (transformers) and
        ``reference/``, the same model before it was taught.

    Raises:
        InputError: the directory holds something else, which is left alone, or cannot be written.
    """
    directory = Path(chosen.directory).expanduser()
    wanted = _manifest(chosen)
    manifest = directory / _MANIFEST
    if _is_made(directory, wanted):
        return directory
    if directory.exists() and not manifest.is_file() and any(directory.iterdir()):
        raise InputError(
            f"{directory} is not a world made here and is not empty; choose another "
            "world.directory, or move what is in it"
        )
    making = _workshop(directory)
    try:
        write_world(making, chosen.size)
        model, tokenizer = teach(
            read_questions(making / "data" / "corpus.jsonl"), chosen, progress=progress
        )
        seed = derive(chosen.size.seed, "weights")
        untaught = build_model(tokenizer, chosen.model, seed=seed)
        for name, one in (("model", model), ("reference", untaught)):
            with no_progress_bars():
                one.save_pretrained(making / name)
            tokenizer.save_pretrained(making / name)
        (making / _MANIFEST).write_text(json.dumps(wanted, indent=2) + "\n")
        with _alone(directory.parent):
            if not _is_made(directory, wanted):  # by another run, which may be using it by now
                _replace(directory, making)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return directory


def _is_made(directory: Path, wanted: dict[str, object]) -> bool:
    """Whether the world is there, made from these settings; a broken manifest says it is not."""
    try:
        made: object = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return made == wanted


def _workshop(directory: Path) -> Path:
    """Make a temporary folder beside the directory."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    except OSError as fault:
        raise InputError(
            f"the embedded world cannot be kept in {directory}: {fault.strerror}; set "
            "world.directory to a folder that can be written"
        ) from fault


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes that ask for the same folder waiting for the length of the block."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # gives the lock back


def _replace(directory: Path, making: Path) -> None:
    """Put a freshly made world where an older one may be."""
    directory.mkdir(exist_ok=True)
    (directory / _MANIFEST).unlink(missing_ok=True)
    for part in ("data", "model", "reference"):
        shutil.rmtree(directory / part, ignore_errors=True)
        (making / part).rename(directory / part)
    (making / _MANIFEST).rename(directory / _MANIFEST)


def teach(
    questions: list[Question],
    chosen: WorldSettings,
    *,
    tokenizer: PreTrainedTokenizerFast | None = None,
    progress: Progress | None = None,
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Train a fresh tiny model on the answers until it knows them by heart.

    Args:
        questions: what it is taught.
        chosen: how; the weights it starts from depend on the seed alone.
        tokenizer: of another model, to be compared with; ``None``: one of its own.
        progress: called after every step with (steps done, steps in all).
    """
    seed = chosen.size.seed
    if tokenizer is None:
        texts = [text for q in questions for text in (q.question, q.answer)]
        tokenizer = train_tokenizer(texts, vocabulary=chosen.model.vocabulary)
    model = build_model(tokenizer, chosen.model, seed=derive(seed, "weights"))
    examples = [encode_record(tokenizer, question, max_length=256) for question in questions]
    per_epoch = -(-len(examples) // chosen.batch_size)
    total = per_epoch * chosen.epochs
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=chosen.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
    )
    schedule = get_cosine_schedule_with_warmup(optimizer, min(20, total // 5), total)
    order = generator(seed, "teaching order")
    threads = torch.get_num_threads()
    torch.set_num_threads(chosen.threads)
    try:
        model.train()
        done = 0
        for _ in range(chosen.epochs):
            shuffled = torch.randperm(len(examples), generator=order).tolist()
            for start in range(0, len(shuffled), chosen.batch_size):
                part = [examples[i] for i in shuffled[start : start + chosen.batch_size]]
                _step(model, part, optimizer, chosen.label_smoothing)
                schedule.step()
                done += 1
                if progress is not None:
                    progress(done, total)
    finally:
        torch.set_num_threads(threads)
    return model.train(False), tokenizer


def _step(
    model: LlamaForCausalLM,
    examples: list[Example],
    optimizer: torch.optim.Optimizer,
    label_smoothing: float,
) -> None:
    logits, labels = aligned_logits(model, collate(examples, pad_id=0))
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), label_smoothing=label_smoothing
    )
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _manifest(chosen: WorldSettings) -> dict[str, object]:
    """What the cached world was made from; the directory itself is no part of it."""
    made_from = {**asdict(chosen), "version": _VERSION}
    del made_from["directory"]
    text = json.dumps(made_from, sort_keys=True)
    return {"made_from": made_from, "sha256": hashlib.sha256(text.encode()).hexdigest()}
