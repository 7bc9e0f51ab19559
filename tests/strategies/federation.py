"""A federation for tests: a small config, clients that misbehave, and a grid without Flower."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fedunlearn.aggregation import MergeSettings
from fedunlearn.config import FederationSettings, RunConfig
from fedunlearn.data.records import write_jsonl
from fedunlearn.evaluation import EvaluationSet, EvaluationSettings
from fedunlearn.models.adapters import LoraSettings
from fedunlearn.models.loading import LoadedModel, ModelSettings
from fedunlearn.summary import ClientSummary
from fedunlearn.training.client_job import run_client_job
from fedunlearn.training.client_settings import ClientIdentity, ClientInstructions
from fedunlearn.training.fisher_pass import FisherSettings
from fedunlearn.training.loop import TrainingSettings
from tests.world import pocket_model, questions

HONEST = (
    ("f-1", "forget", "brewing"),
    ("f-2", "forget", "signals"),
    ("r-1", "retain", "geography"),
)


def federation(directory: Path, *ids: str, **settings: object) -> RunConfig:
    """A run of honest clients, plus one forget client for each of ``ids``."""
    model_dir = directory / "model"
    base = pocket_model()
    base.model.save_pretrained(model_dir)
    base.tokenizer.save_pretrained(model_dir)  # type: ignore[attr-defined]
    data = directory / "data.jsonl"
    write_jsonl(data, [{"question": q.question, "answer": q.answer} for q in questions(4)])
    who = [*HONEST, *((client_id, "forget", "brewing") for client_id in ids)]
    clients = tuple(
        ClientIdentity(
            id=i, role="forget" if role == "forget" else "retain", domain=d, data=str(data)
        )
        for i, role, d in who
    )
    brief = {"learning_rate": 1e-2, "epochs": 1, "batch_size": 4, "max_length": 64}
    return RunConfig(
        name="pocket",
        model=ModelSettings(path=str(model_dir), device="cpu"),
        clients=clients,
        lora=LoraSettings(rank=2, alpha=4),
        forget=TrainingSettings(objective={"name": "grad_ascent"}, **brief),  # type: ignore[arg-type]
        retain=TrainingSettings(objective={"name": "retain_nll"}, **brief),  # type: ignore[arg-type]
        fisher=FisherSettings(num_sequences=2, max_length=64),
        merges={"firm": MergeSettings(method="firm")},
        evaluation=EvaluationSettings(
            sets=(EvaluationSet(name="u", kind="utility", data=str(data)),)
        ),
        federation=FederationSettings(**{"deadline_s": 60.0, **settings}),  # type: ignore[arg-type]
    )


def job(
    base: LoadedModel, identity: ClientIdentity, instructions: ClientInstructions
) -> ClientSummary:
    """The real job, except for clients whose id says how they misbehave."""
    sort = identity.id.split("-")[0]
    if sort == "raises":
        raise ValueError("boom")
    if sort == "dies":
        os._exit(3)
    if sort == "hangs":
        time.sleep(3600)
    if sort == "vandal":
        next(base.model.parameters()).data.add_(1.0)
    return _spoil(run_client_job(base, identity, instructions), sort)


def _spoil(summary: ClientSummary, sort: str) -> ClientSummary:
    name = sorted(summary.fisher)[0]
    fisher = dict(summary.fisher)
    meta = summary.meta
    if sort == "nan":
        fisher[name] = torch.full_like(fisher[name], float("nan"))
    if sort == "shape":
        fisher[name] = fisher[name][:, :-1].contiguous()
    if sort == "key":
        fisher["renamed." + name] = fisher.pop(name)
    if sort == "inflated":
        fisher = {key: one * 1000 for key, one in fisher.items()}
    if sort == "poison":
        summary = poisoned(summary)
    if sort == "regex":
        config = {**summary.adapter_config, "rank_pattern": {"(([a-z.0-9])+.)+#": 2}}
        summary = replace(summary, adapter_config=config)
    if sort == "turncoat":
        meta = replace(meta, role="retain")
    if sort == "impostor":
        meta = replace(meta, client_id="f-1")
    if sort == "stranger":
        meta = replace(meta, base_model_sha256="0" * 64)
    return replace(summary, meta=meta, fisher=fisher)


def poisoned(summary: ClientSummary, factor: float = 100.0) -> ClientSummary:
    """The same with a task vector so many times as long."""
    adapter = {
        key: one * factor if ".lora_B." in key else one for key, one in summary.adapter.items()
    }
    return replace(summary, adapter=adapter)


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


Node = Callable[[Message], Message | None]
"""Answers a message; ``None`` is silence."""


class TableGrid(Grid):
    """Nodes in a table instead of a network: each message is answered when it is first polled.

    Args:
        nodes: node id to its behaviour.
        order: reorders the replies of one poll.
    """

    def __init__(
        self,
        nodes: dict[int, Node],
        *,
        order: Callable[[list[Message]], Iterable[Message]] = iter,
    ) -> None:
        self.nodes = nodes
        self.sent: list[Message] = []
        self._order = order
        self._waiting: dict[str, Message] = {}
        self._numbers = count(1)

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def create_message(self, *args: object, **kwargs: object) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"m{next(self._numbers)}"
            self.sent.append(message)
            self._waiting[message.metadata.message_id] = message
            ids.append(message.metadata.message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        due = [self._waiting.pop(i) for i in list(message_ids) if i in self._waiting]
        replies = [self.nodes[message.metadata.dst_node_id](message) for message in due]
        return list(self._order([reply for reply in replies if reply is not None]))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))


def app_nodes(app: ClientApp, partitions: Sequence[int]) -> dict[int, Node]:
    """Nodes of a simulation that run ``app`` in this process; ids are 100, 101, ..."""

    def node(partition: int) -> Node:
        context = Context(
            run_id=1,
            node_id=100 + partition,
            node_config={"partition-id": partition, "num-partitions": len(partitions)},
            state=RecordDict(),
            run_config={},
        )
        return lambda message: app(message, context)

    return {100 + partition: node(partition) for partition in partitions}


def dead_actor(actor: str, *, pid: int = 7, created_at: float | None = None) -> Node:
    """A node whose reply says, as Flower's simulation does, that its worker is dead."""
    reason = (
        "<class 'ray.exceptions.ActorDiedError'>:<'The actor died unexpectedly before finishing "
        f"this task.\n\tclass_name: ClientAppActor\n\tactor_id: {actor}\n\tpid: {pid}\n'>"
    )

    def answer(message: Message) -> Message:
        reply = Message(Error(0, reason), reply_to=message)
        if created_at is not None:
            reply.metadata.__dict__["_created_at"] = created_at
        return reply

    return answer


@contextmanager
def flower_task() -> Iterator[None]:
    """Pretend to be Flower's server task, without which no message can be made."""
    before = (TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id)
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    try:
        yield
    finally:
        TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id = before
