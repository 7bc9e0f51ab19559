"""Tests a node before a run, as far as it can be tested from the node."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from fedunlearn.config import AnyConfig, MpuConfig, load_run
from fedunlearn.data.reading import DataSpec, is_remote, read_training_records
from fedunlearn.data.refusals import read_refusals
from fedunlearn.deployment.findings import Finding, Findings, attempt
from fedunlearn.deployment.link_checks import check_key, check_link
from fedunlearn.deployment.resource_checks import check_model
from fedunlearn.errors import ConfigError, FedUnlearnError
from fedunlearn.node_config import read_node_file
from fedunlearn.roles import Role
from fedunlearn.training.client_settings import (
    ClientIdentity,
    build_objective,
    refuse_unfit_files,
)
from fedunlearn.training.loop import TrainingSettings


def check_node(
    node_file: Path,
    config: str | None,
    *,
    model_sha256: str | None,
    superlink: str | None,
    root_certificates: Path | None,
    private_key: Path | None,
    clock: Callable[[], float],
) -> Findings:
    """Test what is named; what is not named is left out, but for the node's own data.

    Args:
        node_file: the node's TOML file.
        config: a name or the path of the run's config, for objective, model and folders.
        model_sha256: hash that the model must have.
        superlink: ``host:port`` that the node will connect to.
        root_certificates: of the authority that signed the server's certificate.
        private_key: the node's.
        clock: seconds since 1970.
    """
    clients: tuple[ClientIdentity, ...] = ()
    try:
        clients = read_node_file(node_file)
        said = ", ".join(f"{one.id} ({one.role}, {one.domain})" for one in clients)
        yield Finding("node", "ok", f"answers for {said}")
    except ConfigError as fault:
        yield from (Finding("node", "fault", text, "correct node.toml") for text in fault.faults)
    for client in clients:
        yield from _data(client)
    if config is not None:
        yield from _run(config, clients, model_sha256)
    if private_key is not None:
        yield check_key(private_key)
    if superlink is not None:
        yield from check_link(superlink, root_certificates, clock)


def _data(client: ClientIdentity) -> Findings:
    for key, spec in (("data", client.data), ("retain-data", client.retain_data)):
        if spec is None:
            continue
        check = f"{key} of {client.id}"
        if is_remote(spec):
            text = "is on the hub and was not read"
            yield Finding(check, "warning", text, "see that this node reaches the hub, or has it")
        else:
            yield attempt(check, partial(_records, spec), remedy=f"correct {key} in node.toml")
    if client.refusals is not None:
        path = Path(client.refusals).expanduser()
        yield attempt(f"refusals of {client.id}", partial(_refusals, path))


def _records(spec: DataSpec) -> str:
    return f"{len(read_training_records(spec))} records"


def _refusals(path: Path) -> str:
    return f"{len(read_refusals(path))} lines"


def _run(source: str, clients: Iterable[ClientIdentity], model_sha256: str | None) -> Findings:
    try:
        config = load_run(source)
    except FedUnlearnError as fault:
        yield Finding("config", "fault", str(fault), "a run's config must be on every machine")
        return
    yield Finding("config", "ok", f"{source}, run {config.name!r}, method {config.method}")
    for client in clients:
        for name, training in _trainings(config, client.role):
            spare = isinstance(config, MpuConfig)  # what one arm has no use for another may need
            work = partial(_objective, training, client, spare=spare)
            yield attempt(f"objective of {client.id}{name}", work)
    yield from check_model(config, model_sha256)


def _trainings(config: AnyConfig, role: Role) -> Iterator[tuple[str, TrainingSettings | None]]:
    if isinstance(config, MpuConfig):
        for name, arm in config.arms.items():
            yield f" in arm {name}", arm.forget if role == "forget" else arm.retain
    else:
        yield "", config.forget if role == "forget" else config.retain


def _objective(training: TrainingSettings | None, client: ClientIdentity, *, spare: bool) -> str:
    if training is None:
        raise ConfigError([f"the run has no training for {client.role} clients"])
    refuse_unfit_files(build_objective(training, client.role), client, spare=spare)
    return f"{training.objective['name']} fits its role and files"
