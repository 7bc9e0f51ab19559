"""Checks that need more than one key: files, ids, names that refer to other names.

They run on whatever parts of a config are well-formed, so that one bad key hides no other fault.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedunlearn.aggregation import MergeSettings
from fedunlearn.config.data_entries import partition_faults
from fedunlearn.config.schema import FederationSettings, SweepSettings
from fedunlearn.data.reading import (
    DataSpec,
    is_remote,
    local_path,
    read_choice_set,
    read_question_set,
    read_training_records,
)
from fedunlearn.data.refusals import read_refusals
from fedunlearn.errors import InputError
from fedunlearn.evaluation import EvaluationSet
from fedunlearn.models.adapters import LoraSettings, lora_fault
from fedunlearn.models.expert import load_expert
from fedunlearn.models.loading import ModelSettings, resolve_device
from fedunlearn.names import LABEL_RULE, NAME_RULE, is_label, is_name
from fedunlearn.objectives import Objective
from fedunlearn.registry import nearest
from fedunlearn.roles import ROLES, Role
from fedunlearn.training.client_settings import ClientIdentity, build_objective, unfit_files
from fedunlearn.training.expert_lesson import LessonSettings
from fedunlearn.training.loop import TrainingSettings
from fedunlearn.training.teaching import WorldSettings

T = TypeVar("T")


@dataclass(frozen=True)
class _Parts:
    """The well-formed parts of a config; lists keep their places in the config."""

    name: str | None
    world: WorldSettings | None
    world_directory: Path | None
    model: ModelSettings | None
    reference: ModelSettings | None
    lesson: LessonSettings | None
    clients: dict[int, ClientIdentity]
    trainings: tuple["_Training", ...]
    num_clients: int
    federation: FederationSettings | None
    merges: dict[str, MergeSettings]
    sets: dict[int, EvaluationSet]
    sweep: SweepSettings | None
    listed: tuple[str, ...]
    arms: tuple[str, ...]


@dataclass(frozen=True)
class _Training:
    """What clients train: in FIRM there is one of these, in MPU one for every arm.

    Attributes:
        at: what its keys begin with.
        lora: the adapter, if it is one and well-formed.
        objectives: of each role, as far as they are well-formed.
        early_stop: of retain clients.
    """

    at: str
    lora: LoraSettings | None
    objectives: dict[Role, Objective]
    early_stop: object


def cross_check(tree: Mapping[str, Any], *, local: bool, fetch: bool = False) -> list[str]:
    """List the faults between keys, and between the config and the files it names.

    Files below the embedded world's directory are left out: the world is made later.

    Args:
        tree: the whole config, plain containers.
        local: check files, and that there is a client at all.
        fetch: read data that is on the hub, too.
    """
    parts = _parts(tree)
    checks = [_name_faults, _world_faults, _client_faults, _set_faults, _merge_faults]
    checks.append(_objective_faults)
    faults = [fault for check in checks for fault in check(parts)]
    if tree.get("merges") == {}:
        faults.append("merges: expected at least one merge, got none")
    if local:
        if not tree.get("clients"):
            faults.append("clients: expected at least one client, got none")
        faults += [*_file_faults(parts, fetch=fetch), *_model_faults(parts)]
        faults += _expert_faults(parts)
    return faults


def _parts(tree: Mapping[str, Any]) -> _Parts:
    name, merges, clients = tree.get("name"), tree.get("merges"), tree.get("clients")
    evaluation = tree.get("evaluation")
    sets = evaluation.get("sets") if isinstance(evaluation, Mapping) else None
    merges = merges if isinstance(merges, Mapping) else {}
    arms = tree.get("arms")
    arms = arms if isinstance(arms, Mapping) else {}
    world = tree.get("world")
    directory = world.get("directory") if isinstance(world, Mapping) else None
    return _Parts(
        name=name if isinstance(name, str) else None,
        world=_typed(WorldSettings, world),
        world_directory=Path(directory).expanduser() if isinstance(directory, str) else None,
        model=_typed(ModelSettings, tree.get("model")),
        reference=_typed(ModelSettings, tree.get("reference")),
        lesson=_typed(LessonSettings, tree.get("teach")),
        clients=_typed_items(ClientIdentity, clients),
        trainings=tuple(_trainings(tree)),
        num_clients=len(clients) if isinstance(clients, list) else 0,
        federation=_typed(FederationSettings, tree.get("federation")),
        merges={
            str(key): merge
            for key, value in merges.items()
            if (merge := _typed(MergeSettings, value)) is not None
        },
        sets=_typed_items(EvaluationSet, sets),
        sweep=_typed(SweepSettings, tree.get("sweep")),
        listed=tuple(map(str, merges)),
        arms=tuple(map(str, arms)),
    )


def _trainings(tree: Mapping[str, Any]) -> Iterator[_Training]:
    arms = tree.get("arms")
    parts = {f"arms.{name}.": arm for name, arm in arms.items()} if _is_tree(arms) else {"": tree}
    for at, part in parts.items():
        if isinstance(part, Mapping):
            retain = part.get("retain")
            stop = retain.get("stop_at_loss") if isinstance(retain, Mapping) else None
            yield _Training(at, _typed(LoraSettings, part.get("lora")), _objectives(part), stop)


def _is_tree(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _objectives(tree: Mapping[str, Any]) -> dict[Role, Objective]:
    found: dict[Role, Objective] = {}
    for role in ROLES:
        if (chosen := _typed(TrainingSettings, tree.get(role))) is not None:
            with suppress(InputError):  # said where hyperparameters are checked
                found[role] = build_objective(chosen, role)
    return found


def _typed(schema: type[T], value: object) -> T | None:
    try:
        return TypeAdapter(schema).validate_python(value)
    except ValidationError:
        return None


def _typed_items(schema: type[T], rows: object) -> dict[int, T]:
    rows = rows if isinstance(rows, list) else []
    typed = {place: _typed(schema, row) for place, row in enumerate(rows)}
    return {place: item for place, item in typed.items() if item is not None}


def _name_faults(parts: _Parts) -> Iterator[str]:
    named = [("name", parts.name)] if parts.name is not None else []
    named += [(f"clients.{place}.id", client.id) for place, client in parts.clients.items()]
    named += [(f"merges.{name}", name) for name in parts.listed]
    named += [(f"arms.{name}", name) for name in parts.arms]
    named += [(f"evaluation.sets.{place}.name", one.name) for place, one in parts.sets.items()]
    for key, name in named:
        if not is_name(name or ""):
            yield f"{key}: expected {NAME_RULE}, got {name!r}"


def _world_faults(parts: _Parts) -> Iterator[str]:
    """The world's directory is replaced when its settings change: it must be nobody else's."""
    if parts.world is None:
        return
    directory = Path(parts.world.directory).expanduser()
    foreign = directory.is_dir() and not (directory / "world.json").is_file()
    above = next((path for path in directory.parents if path.exists()), directory)
    if directory.is_file():
        yield f"world.directory: {directory} is a file"
    elif not above.is_dir():
        yield f"world.directory: {above} is a file, so nothing can be below it"
    elif foreign and any(directory.iterdir()):
        yield f"world.directory: {directory} holds other files; name a folder of its own"


def _client_faults(parts: _Parts) -> Iterator[str]:
    for client_id, count in Counter(client.id for client in parts.clients.values()).items():
        if count > 1:
            yield f"clients: id {client_id!r} is used by {count} clients; ids must differ"
    for place, client in parts.clients.items():
        if not is_label(client.domain):
            got = repr(client.domain)[:80]
            yield f"clients.{place}.domain: expected the data's subject, {LABEL_RULE}, got {got}"
    yield from partition_faults({place: (one.id, one.data) for place, one in parts.clients.items()})
    wanted = parts.federation.expected_clients if parts.federation else None
    if wanted is not None and parts.num_clients not in (0, wanted):
        yield (
            f"federation.expected_clients: {parts.num_clients} clients are listed, got {wanted}; "
            "leave it null, the list says their number"
        )
    nodes = parts.federation.expected_nodes if parts.federation else None
    known = wanted or parts.num_clients
    if nodes is not None and nodes > known:
        yield (
            f"federation.expected_nodes: {nodes} SuperNodes for {known or 'an unknown number of'} "
            "clients; set expected_clients, of which a node has one or several"
        )


def _file_faults(parts: _Parts, *, fetch: bool) -> Iterator[str]:
    readers: list[tuple[str, Any, Callable[[Any], Sequence[object]]]] = []
    for place, client in parts.clients.items():
        readers.append((f"clients.{place}.data", client.data, _reader(parts, client)))
        readers.append((f"clients.{place}.retain_data", client.retain_data, read_training_records))
        readers.append((f"clients.{place}.refusals", client.refusals, _read_refusals))
    for place, one in parts.sets.items():
        readers.append((f"evaluation.sets.{place}.data", one.data, read_question_set))
        readers.append((f"evaluation.sets.{place}.choices", one.choices, read_choice_set))
        readers.append((f"evaluation.sets.{place}.holdout", one.holdout, read_question_set))
    if parts.lesson is not None:
        readers.append(("teach.data", parts.lesson.data, read_training_records))
    for key, spec, read in readers:
        if spec is None or _made_later(local_path(spec) or "", parts.world_directory):
            continue
        try:
            if fetch or not is_remote(spec):
                read(spec)
        except InputError as fault:
            yield f"{key}: {fault}"


def _reader(parts: _Parts, client: ClientIdentity) -> Callable[[DataSpec], Sequence[object]]:
    """Preferred answers are to questions; every other objective takes passages too."""
    objectives = [training.objectives.get(client.role) for training in parts.trainings]
    strict = any(objective and objective.needs_preferred for objective in objectives)
    return read_question_set if strict else read_training_records


def _read_refusals(path: str) -> Sequence[str]:
    return read_refusals(Path(path).expanduser())


def _objective_faults(parts: _Parts) -> Iterator[str]:
    for training in parts.trainings:
        if training.early_stop is not None:
            key = f"{training.at}retain.stop_at_loss"
            yield f"{key}: only a forget client stops at a loss; leave it null"
        for place, client in parts.clients.items():
            if (objective := training.objectives.get(client.role)) is not None:
                # what one arm has no use for another may read
                for key, text in unfit_files(objective, client, spare=bool(training.at)):
                    yield f"clients.{place}.{key}: {text}"


def _model_faults(parts: _Parts) -> Iterator[str]:
    """What this machine or a model does not have; a hub id is not looked up for it."""
    for key, model in (("model", parts.model), ("reference", parts.reference)):
        if model is not None:
            yield from _folder_faults(key, model, parts)


def _folder_faults(key: str, model: ModelSettings, parts: _Parts) -> Iterator[str]:
    try:
        resolve_device(model.device)
    except InputError as fault:
        yield str(fault)
    if not model.path.strip():
        yield f"{key}.path: expected a hub id or a folder, got an empty text"
    elif not _made_later(model.path, parts.world_directory):
        folder = Path(model.path)
        if not folder.is_absolute():
            return
        if not (folder / "config.json").is_file():
            yield f"{key}.path: {folder} is no model folder (it has no config.json)"
            return
        for training in parts.trainings:
            if training.lora is not None and (fault_of_lora := lora_fault(folder, training.lora)):
                yield f"{training.at}lora: {fault_of_lora}"


def _expert_faults(parts: _Parts) -> Iterator[str]:
    """Read an expert that is a folder; a hub id is not looked up for it."""
    chosen = parts.model
    if chosen is None or chosen.expert is None or not Path(chosen.expert).is_absolute():
        return
    try:
        load_expert(chosen.expert, chosen.expert_revision)
    except InputError as fault:
        yield f"model.expert: {fault}"


def _made_later(path: str, world: Path | None) -> bool:
    return world is not None and Path(path).is_relative_to(world)


def _set_faults(parts: _Parts) -> Iterator[str]:
    forgotten = sorted({c.domain for c in parts.clients.values() if c.role == "forget"})
    for place, one in parts.sets.items():
        if one.kind == "forget" and forgotten and one.domain not in forgotten:
            hint = nearest(one.domain, forgotten)
            yield f"evaluation.sets.{place}.domain: no forget client has {one.domain!r}{hint}"


def _merge_faults(parts: _Parts) -> Iterator[str]:
    asked = parts.federation.evaluate if parts.federation else None
    if asked is not None and parts.arms:
        yield "federation.evaluate: clients of mpu must not have the model; leave it null"
    elif asked is not None and asked not in parts.listed:
        hint = nearest(asked, list(parts.listed))
        yield f"federation.evaluate: {asked!r} is not in merges{hint}"
    for name in (parts.sweep.gammas or {}) if parts.sweep else ():
        if name not in parts.listed:
            yield f"sweep.gammas: {name!r} is not in merges{nearest(name, list(parts.listed))}"
    if not parts.num_clients:
        return  # a deployment knows its clients' names only when they come
    retained = [client.id for client in parts.clients.values() if client.role == "retain"]
    for name, merge in parts.merges.items():
        yield from _budget_faults(name, merge, retained)


def _budget_faults(name: str, merge: MergeSettings, retained: Iterable[str]) -> Iterator[str]:
    """A budget per client must name retain clients, and every one of them."""
    budgets = getattr(merge.epsilon, "per_client", None)
    if budgets is None:
        return
    known = list(retained)
    for client_id in budgets:
        if client_id not in known:
            hint = nearest(client_id, known)
            yield f"merges.{name}.epsilon.per_client: no retain client {client_id!r}{hint}"
    for client_id in known:
        if client_id not in budgets:
            yield f"merges.{name}.epsilon.per_client: retain client {client_id!r} has no budget"
