"""Writes a deployment: all of it or nothing, keys for their owner's eyes only."""

import datetime
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fedunlearn.deployment.certificates import (
    make_authority,
    make_node_key,
    make_server_certificate,
)
from fedunlearn.deployment.commands import CONNECTION
from fedunlearn.deployment.guide import guide
from fedunlearn.deployment.plan import DeploymentPlan, NodePlan
from fedunlearn.deployment.units import (
    superlink_compose,
    superlink_units,
    supernode_compose,
    supernode_unit,
)
from fedunlearn.errors import InputError

_AUTHORITY_DAYS = 3650
_SECRET = ".key"

Content = str | bytes


def write_deployment(
    plan: DeploymentPlan, folder: Path, *, clock: Callable[[], datetime.datetime]
) -> None:
    """Make keys and certificates and write everything below ``folder``.

    The folder appears under its name when all of it is written. Folders are 0700, private keys
    0600.

    Args:
        plan: what is deployed.
        folder: must not exist.
        clock: tells the time, with its zone.

    Raises:
        InputError: the folder exists, or cannot be written.
    """
    folder = folder.expanduser().absolute()
    if folder.exists() or folder.is_symlink():
        raise InputError(
            f"{folder} exists; a deployment never replaces keys: name another folder, or remove it"
        )
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir(mode=0o700)
        for path, content in _files(plan, folder, clock()).items():
            _write(partial, Path(path), content)
        (partial / "superlink" / "state").mkdir(mode=0o700)
        partial.rename(folder)
    except OSError as fault:
        raise InputError(f"{folder} cannot be written: {fault.strerror}") from fault
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write(root: Path, path: Path, content: Content) -> None:
    for above in reversed(path.parents[:-1]):
        (root / above).mkdir(mode=0o700, exist_ok=True)
    mode = 0o600 if path.suffix == _SECRET else 0o644
    handle = os.open(root / path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        os.fchmod(file.fileno(), mode)  # whatever the umask
        os.fsync(file.fileno())


def _files(plan: DeploymentPlan, folder: Path, now: datetime.datetime) -> Mapping[str, Content]:
    authority = make_authority(now, days=_AUTHORITY_DAYS)
    server = make_server_certificate(authority, plan.hosts, now, days=plan.days)
    root = authority.pair.public
    files: dict[str, Content] = {
        "README.md": guide(plan, folder),
        "authority/ca.key": authority.pair.private,
        "authority/ca.crt": root,
        "superlink/ca.crt": root,
        "superlink/server.crt": server.public,
        "superlink/server.key": server.private,
        "superlink/compose.yaml": superlink_compose(plan),
        "operator/config.toml": _operator(plan, folder),
        **{f"superlink/{name}": text for name, text in superlink_units(plan).items()},
    }
    for node in plan.nodes:
        files |= _node_files(plan, node, root)
    return files


def _node_files(plan: DeploymentPlan, node: NodePlan, root: bytes) -> dict[str, Content]:
    key = make_node_key(node.name)
    own = f"nodes/{node.name}"
    return {
        f"{own}/ca.crt": root,
        f"{own}/node.key": key.private,
        f"{own}/node.toml": "\n".join(_node_toml(node)),
        f"{own}/fedunlearn-supernode.service": supernode_unit(plan, node),
        f"{own}/compose.yaml": supernode_compose(plan, node),
        f"superlink/keys/{node.name}.pub": key.public,
    }


def _node_toml(node: NodePlan) -> Iterator[str]:
    yield "# Read by this node only: the server is told ids, roles and domains, never a path."
    for client in node.clients:
        yield "\n[[clients]]"
        yield f'id = "{client.id}"'
        yield f'role = "{client.role}"'
        yield f'domain = "{_escaped(client.domain)}"'
        yield f'data = "/srv/data/{client.id}.jsonl"   # put the path of its data here'
        if client.role == "forget":
            yield '# retain-data = "/srv/data/kept.jsonl"     # for objectives with a retain term'
            yield '# refusals = "/srv/data/refusals.txt"      # for objectives like dpo'
    yield ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _operator(plan: DeploymentPlan, folder: Path) -> str:
    root = _escaped(str(folder / "superlink" / "ca.crt"))
    return (
        f"[superlink.{CONNECTION}]\n"
        f'address = "127.0.0.1:{plan.superlink_port}"\n'
        f'root-certificates = "{root}"\n'
    )
