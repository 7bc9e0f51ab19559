"""Composition root of a client: a Flower ClientApp with four thin handlers.

Who the node is comes from the node. In a deployment its ``--node-config`` has ``client-id``,
``role``, ``domain`` and ``data``, and where its objective reads them ``retain-data`` and
``refusals``; in a simulation, where nodes only have a number, that number picks an entry of the
run's ``clients``. Whatever goes wrong is sent back as a ``failure`` record
that names the client, so that the server need not read stack traces.
"""

import json
import logging
import time
from collections.abc import Callable
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
from fedunlearn.data.reading import DataSpec, build_source
from fedunlearn.errors import ConfigError, FedUnlearnError, InputError
from fedunlearn.names import LABEL_RULE, NAME_RULE, is_label, is_name
from fedunlearn.roles import ROLES
from fedunlearn.rounds import UNKNOWN_DOMAIN, UNKNOWN_ROLE, ClientFailure
from fedunlearn.run_keys import config_of
from fedunlearn.training.client_job import run_client_job
from fedunlearn.training.client_settings import ClientIdentity
from fedunlearn.training.copy_job import run_copy_job
from strategies import records

ConfigSource = Callable[[Context], AnyConfig]
Work = Callable[[AnyConfig, ClientIdentity, RecordDict], RecordDict]

NODE_KEYS = ("client-id", "role", "domain", "data")
OPTIONAL_NODE_KEYS = ("retain-data", "refusals")
PARTITION_KEY = "partition-id"
GRACE_S = 5.0  # a client gives up a little after the server stopped waiting for it

logger = logging.getLogger(__name__)


def run_config_source(context: Context) -> AnyConfig:
    """Load the config that the keys of the run name."""
    return config_of(context.run_config)


def node_identity(context: Context, config: AnyConfig) -> ClientIdentity:
    """Find out who this node is.

    Raises:
        ConfigError: a key is missing or invalid, or the simulation has more nodes than the run
            has clients; every fault is named.
    """
    given = {key: str(context.node_config.get(key, "")) for key in NODE_KEYS}
    if any(given.values()) or PARTITION_KEY not in context.node_config:
        retain_data, refusals = map(context.node_config.get, OPTIONAL_NODE_KEYS)
        return replace(
            _deployed_identity(given),
            retain_data=_node_data(str(retain_data), "retain-data") if retain_data else None,
            refusals=str(refusals) if refusals else None,
        )
    partition = int(context.node_config[PARTITION_KEY])
    if partition >= len(config.clients):
        raise ConfigError(
            [
                f"clients: the simulation has a node {partition} but the run has "
                f"{len(config.clients)} clients; set num-supernodes to that number"
            ]
        )
    return config.clients[partition]


def _deployed_identity(given: dict[str, str]) -> ClientIdentity:
    faults = [
        f"node-config: {key!r} is missing; start the SuperNode with --node-config '{key}=\"...\"'"
        for key, value in given.items()
        if not value
    ]
    if given["client-id"] and not is_name(given["client-id"]):
        faults.append(f"node-config: client-id {given['client-id']!r} must be {NAME_RULE}")
    if given["domain"] and not is_label(given["domain"]):
        faults.append(f"node-config: domain {given['domain']!r} must be {LABEL_RULE}")
    if given["role"] and given["role"] not in ROLES:
        faults.append(f"node-config: role {given['role']!r} is none of {', '.join(ROLES)}")
    if faults:
        raise ConfigError(faults)
    role = next(role for role in ROLES if role == given["role"])
    return ClientIdentity(
        id=given["client-id"],
        role=role,
        domain=given["domain"],
        data=_node_data(given["data"], "data"),
    )


def _node_data(text: str, key: str) -> DataSpec:
    """A path; or, in braces, a data source and its settings as JSON.

    Raises:
        ConfigError: what is in braces is no JSON object or describes no source.
    """
    if not text.lstrip().startswith("{"):
        return text
    try:
        spec: dict[str, object] = json.loads(text)
        build_source(spec)
    except (ValueError, InputError) as fault:
        raise ConfigError([f"node-config: {key}: {fault}"]) from None
    return spec


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

    def introduce(config: AnyConfig, identity: ClientIdentity, _: RecordDict) -> RecordDict:
        client: UnlearnClient | CopyClient
        if isinstance(config, MpuConfig):
            client = CopyClient(identity, config.reference)
        else:
            client = UnlearnClient(identity, config.model)
        return records.hello_content(client.get_properties({}))

    def train(config: AnyConfig, identity: ClientIdentity, content: RecordDict) -> RecordDict:
        if isinstance(config, MpuConfig):
            raise ConfigError(["method: this node's config is of mpu, not of firm"])
        resume = config.resume
        work = partial(run_job, resume=resume) if resume.folder else run_job
        client = UnlearnClient(identity, config.model, run_job=work)
        arrays, meta = read_fit(client.fit([], {"instructions": records.read_task(content)}))
        return records.summary_content(arrays, meta)

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

    def handle(message: Message, context: Context, work: Work) -> Message:
        who = ClientFailure(f"node {context.node_id}", UNKNOWN_ROLE, UNKNOWN_DOMAIN, "")
        try:
            config = config_source(context)
            identity = node_identity(context, config)
            who = ClientFailure(identity.id, identity.role, identity.domain, "")
            torch.set_num_threads(max(1, int(config.federation.client_cpus)))
            with time_limit(_seconds_left(message, context)):
                content = work(config, identity, message.content)
        except Exception as fault:  # reported to the server, which decides what becomes of the run
            logger.warning("client %s failed", who.client_id, exc_info=True)
            content = records.failure_content(replace(who, reason=describe(fault)))
        return Message(content, reply_to=message)

    @app.query()
    def _hello(message: Message, context: Context) -> Message:
        return handle(message, context, introduce)

    @app.train()
    def _train(message: Message, context: Context) -> Message:
        return handle(message, context, train)

    @app.train("copy")
    def _unlearn_copy(message: Message, context: Context) -> Message:
        return handle(message, context, unlearn_copy)

    @app.evaluate()
    def _evaluate(message: Message, context: Context) -> Message:
        return handle(message, context, evaluate)

    return app


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
