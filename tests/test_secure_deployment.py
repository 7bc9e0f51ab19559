"""Real processes with TLS and node keys: who belongs gets in, and nobody else gets anything."""

import base64
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import sign_message

from fedunlearn.config import load_config
from fedunlearn.deployment import write_deployment
from fedunlearn.deployment.certificates import make_node_key
from fedunlearn.events import read_events
from fedunlearn.training.client_settings import ClientIdentity
from tests.deployment import Processes
from tests.pocket_run import write_config
from tests.secure_deployment import SecureDeployment, now, plan_of, unlisted
from tests.test_deployment import clients_by_hand, digests, merge_by_hand, tree_of
from tests.world import pocket_world

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <(socket|ssl):ResourceWarning"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pocket_world(tmp_path_factory.mktemp("pocket") / "world")


def held_by_two(world: Path, folder: Path) -> dict[str, list[ClientIdentity]]:
    """One node forgets in one domain and retains in another; a second one forgets."""
    config = load_config(write_config(folder / "listed.yaml", tree_of(world)))
    brewing, signals, geography = config.clients
    return {"both": [brewing, geography], "signals": [signals]}


def signed(claimed: bytes, key: ec.EllipticCurvePrivateKey) -> Mapping[str, str]:
    """Headers of a node that claims a public key and signs with a private one."""
    stamp = now().isoformat()
    return {
        "Content-Type": "application/protobuf",
        TIMESTAMP_HEADER: stamp,
        FLEET_HTTP_PUBLIC_KEY_HEADER: base64.b64encode(claimed).decode(),
        FLEET_HTTP_SIGNATURE_HEADER: base64.b64encode(sign_message(key, stamp.encode())).decode(),
    }


def public_bytes(deployment: SecureDeployment, name: str) -> bytes:
    """A registered key in the form in which Flower sends it."""
    file = deployment.folder / "superlink" / "keys" / f"{name}.pub"
    key = load_ssh_public_key(file.read_bytes())
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def private(content: bytes) -> ec.EllipticCurvePrivateKey:
    key = load_ssh_private_key(content, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


@pytest.mark.timeout(900)
def test_the_readme_of_a_deployment_as_written_gives_the_bits_of_a_run_by_hand(
    world: Path, tmp_path: Path, processes: Processes
) -> None:
    held = held_by_two(world, tmp_path)
    config = load_config(tmp_path / "listed.yaml")
    clients_by_hand(config, tmp_path / "hand")
    merge_by_hand(config, tmp_path / "hand")

    deployment = SecureDeployment(processes, plan_of(held), tmp_path / "deployment")
    deployment.fill_in(held)
    deployment.start_server()
    for name in held:
        deployment.register(name)
        assert "fault" not in deployment.check(name)
        deployment.start_node(name)
    run = unlisted(tmp_path / "run.yaml", tree_of(world), clients=3, nodes=2)
    deployment.run(run, tmp_path / "deployed", limit_s=500)

    assert '"finished:completed"' in deployment.statuses()
    assert digests(tmp_path / "deployed") == digests(tmp_path / "hand") != {}
    events = read_events(tmp_path / "deployed" / "events.jsonl")
    (hands,) = [event for event in events if event["event"] == "handshake"]
    nodes = {one["client_id"]: one["node_id"] for one in hands["clients"]}
    assert nodes["brewing-0"] == nodes["geography"] != nodes["signals-0"]
    logs = "".join(processes.said(f"supernode-{name}") for name in held)
    assert "BEGIN" not in logs  # no key is shown


@pytest.mark.timeout(600)
def test_strangers_impostors_and_a_wrong_authority_get_nothing(
    world: Path, tmp_path: Path, processes: Processes
) -> None:
    held = held_by_two(world, tmp_path)
    deployment = SecureDeployment(processes, plan_of(held), tmp_path / "deployment")
    write_deployment(deployment.plan, tmp_path / "other", clock=now)
    deployment.start_server()
    deployment.register("signals")

    # a node whose key nobody registered ends
    deployment.start_node("both")
    assert processes.wait("supernode-both", limit_s=120) == 1
    assert "Failed to activate SuperNode" in processes.said("supernode-both")

    # a node that trusts another authority ends before it says who it is
    root = str(deployment.folder / "nodes" / "signals" / "ca.crt")
    wrong = str(tmp_path / "other" / "nodes" / "signals" / "ca.crt")
    command = deployment.command("flower-supernode", "nodes/signals/node.key")
    processes.start("wrong-authority", [wrong if one == root else one for one in command])
    assert processes.wait("wrong-authority", limit_s=120) == 1
    assert "certificate verify failed" in processes.said("wrong-authority")

    # the registered key with its own signature is let in, with another signature it is not
    claimed = public_bytes(deployment, "signals")
    activate = ActivateNodeRequest(public_key=claimed, heartbeat_interval=30.0).SerializeToString()
    own = private((deployment.folder / "nodes" / "signals" / "node.key").read_bytes())
    forged = private(make_node_key("impostor").private)
    for key, status in ((own, 200), (forged, 401)):
        headers = signed(claimed, key)
        assert (
            deployment.status("/v1/fleet/activate-node", body=activate, headers=headers) == status
        )
    assert deployment.status("/v1/fleet/activate-node", body=activate) != 200

    # what belongs to the operator and to apps is not there for anybody at the gate
    for path in (
        *("/v1/control/list-runs", "/v1/control/register-node", "/v1/runtime/acquire-task"),
        *("/v1/fleet/../control/list-runs", "/v1/fleet/..%2fcontrol%2flist-runs", "/docs", "/"),
    ):
        assert deployment.status(path, body=b"") == 404, path
        assert deployment.status(path, method="GET") in (404, 405), path
