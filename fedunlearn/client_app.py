"""Composition root of a client: a Flower ClientApp with four thin handlers.

Which clients a node answers for comes from the node, see :mod:`fedunlearn.node_config`. In the
handshake it speaks for all of them; a training message is for one, and the node refuses one that
is not its own. Whatever goes wrong is sent back as a ``failure`` record that names the client, so
that the server need not read stack traces.
"""

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import Scalar

from clients.deadline import time_limit
from clients.evaluate import EvaluatingClient
from clients.unlearn import RunJob, UnlearnClient, read_fit
from clients.unlearn_copy import CopyClient, RunCopyJob, read_copy_fit
from fedunlearn.config import AnyConfig, MpuConfig
from fedunlearn.errors import ConfigError, FedUnlearnError, RunError
from fedunlearn.names import shown
from fedunlearn.node_config import PARTITION_KEY, node_clients
from fedunlearn.rounds import UNKNOWN_DOMAIN, UNKNOWN_ROLE, ClientFailure
from fedunlearn.run_keys import config_of
from fedunlearn.training.client_job import run_client_job
from fedunlearn.training.client_settings import ClientIdentity
from fedunlearn.training.copy_job import run_copy_job
from strategies import records

ConfigSource = Callable[[Context], AnyConfig]
Work = Callable[[AnyConfig, ClientIdentity, RecordDict], RecordDict]
Answering = Callable[[AnyConfig, Sequence[ClientIdentity], RecordDict], RecordDict]

GRACE_S = 5.0  # a client gives up a little after the server stopped waiting for it

logger = logging.getLogger(__name__)


def run_config_source(context: Context) -> AnyConfig:
    """Load the config that the keys of the run name."""
    return config_of(context.run_config)


def make_client_app(
    config_source: ConfigSource = run_config_source,
    *,
    run_job: RunJob = run_client_job,
    run_copy_job: RunCopyJob = run_copy_job,
) -> ClientApp:
    """Build the ClientApp.

    Args:
        config_source: finds the run's config, from which the client takes the base model, the
            number of threads and, in a simulation, its identity.
        run_job: the client's work in FIRM; replaced in tests only.
        run_copy_job: the client's work in MPU; likewise.
    """
    app = ClientApp()

    def train(config: AnyConfig, identity: ClientIdentity, content: RecordDict) -> RecordDict:
        if isinstance(config, MpuConfig):
            raise ConfigError(["method: this node's config is of mpu, not of firm"])
        resume = config.resume
        work = partial(run_job, resume=resume) if resume.folder else run_job
        client = UnlearnClient(identity, config.model, run_job=work)
        arrays, meta = read_fit(client.fit([], {"instructions": records.read_task(content)}))
        return records.summary_content(arrays, meta, records.task_digest(content))

    def evaluate(config: AnyConfig, identity: ClientIdentity, content: RecordDict) -> RecordDict:
        if isinstance(config, MpuConfig) or config.federation.evaluate is None:
            raise ConfigError(["federation.evaluate: this node's config does not ask for it"])
        arrays, merge = records.read_evaluation_task(content)
        client = EvaluatingClient(identity, config.model, config.evaluation)
        told: dict[str, Scalar] = {"names": json.dumps(list(arrays)), "merge": merge}
        _, _, found = client.evaluate(list(arrays.values()), told)
        return records.evaluation_content(str(found["evaluation"]))

    def unlearn_copy(
        config: AnyConfig, identity: ClientIdentity, content: RecordDict
    ) -> RecordDict:
        if not isinstance(config, MpuConfig):
            raise ConfigError([f"method: this node's config is of {config.method}, not of mpu"])
        client = CopyClient(identity, config.reference, run_job=run_copy_job)
        arrays, dtypes, instructions = records.read_copy(content)
        labels: dict[str, Scalar] = {"dtypes": dtypes, "instructions": instructions}
        made = client.fit(list(arrays.values()), {"names": json.dumps(list(arrays)), **labels})
        return records.update_content(*read_copy_fit(made))

    def handle(message: Message, context: Context, answer: Answering) -> Message:
        try:
            config = config_source(context)
            clients = node_clients(context.node_config, config.clients)
            torch.set_num_threads(max(1, int(config.federation.client_cpus)))
            with time_limit(_seconds_left(message, context)):
                content = answer(config, clients, message.content)
        except Exception as fault:  # nobody can say yet which client it concerns
            who = ClientFailure(f"node {context.node_id}", UNKNOWN_ROLE, UNKNOWN_DOMAIN, "")
            content = records.failure_content(_failure(who, fault))
        return Message(content, reply_to=message)

    @app.query()
    def _hello(message: Message, context: Context) -> Message:
        return handle(message, context, introduce_all)

    @app.train()
    def _train(message: Message, context: Context) -> Message:
        return handle(message, context, partial(do_for_one, train))

    @app.train("copy")
    def _unlearn_copy(message: Message, context: Context) -> Message:
        return handle(message, context, partial(do_for_one, unlearn_copy))

    @app.evaluate()
    def _evaluate(message: Message, context: Context) -> Message:
        return handle(message, context, partial(do_for_one, evaluate))

    return app


def introduce_all(
    config: AnyConfig, clients: Sequence[ClientIdentity], content: RecordDict
) -> RecordDict:
    """Say of each of the node's clients who it is, or why it cannot take part."""
    salt = records.read_salt(content)
    return records.hellos_content([_introduce(config, one, salt) for one in clients])


def _introduce(
    config: AnyConfig, identity: ClientIdentity, salt: str
) -> dict[str, Scalar] | ClientFailure:
    try:
        client: UnlearnClient | CopyClient
        if isinstance(config, MpuConfig):
            client = CopyClient(identity, config.reference)
        else:
            client = UnlearnClient(identity, config.model)
        return client.get_properties({"salt": salt})
    except Exception as fault:  # reported to the server, as the node's other clients are
        return _failure(_named(identity), fault)


def do_for_one(
    work: Work, config: AnyConfig, clients: Sequence[ClientIdentity], content: RecordDict
) -> RecordDict:
    """Do the work that the server asks of one of the node's clients.

    Raises:
        RunError: that client is not this node's.
    """
    asked = records.read_client_id(content)
    identity = next((one for one in clients if one.id == asked), None)
    if identity is None:
        mine = ", ".join(one.id for one in clients)
        raise RunError(f"the server asks for client {shown(asked)}, but this node has {mine}")
    try:
        return work(config, identity, content)
    except Exception as fault:  # reported to the server, which decides what becomes of the run
        return records.failure_content(_failure(_named(identity), fault))


def _named(identity: ClientIdentity) -> ClientFailure:
    return ClientFailure(identity.id, identity.role, identity.domain, "")


def _failure(who: ClientFailure, fault: Exception) -> ClientFailure:
    """Put a fault in words, and its stack trace in the node's log."""
    logger.warning("client %s failed", who.client_id, exc_info=fault)
    return replace(who, reason=describe(fault))


def describe(fault: Exception) -> str:
    """Put an exception in words: ours as they are, others with their type."""
    if isinstance(fault, FedUnlearnError):
        return str(fault)
    return f"{type(fault).__name__}: {fault}"


def _seconds_left(message: Message, context: Context) -> float:
    """Time until the client should give up; clocks of two machines are never compared."""
    seconds = records.read_limit(message.content) + GRACE_S
    if PARTITION_KEY not in context.node_config:
        return seconds
    return message.metadata.created_at + seconds - time.time()


app = make_client_app()
