"""A deployment whose server and node share no loopback, as on two machines."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedunlearn.config import load_config
from tests.deployment import Processes
from tests.pocket_run import write_config
from tests.secure_deployment import SecureDeployment, plan_of, unlisted
from tests.test_deployment import clients_by_hand, digests, merge_by_hand, tree_of
from tests.world import pocket_world

SERVER, NODE = "10.213.77.1", "10.213.77.2"


def ip(*words: str) -> bool:
    done = subprocess.run(["ip", *words], capture_output=True, check=False)
    return done.returncode == 0


@pytest.fixture
def namespaces() -> Iterator[dict[str, str]]:
    """Two namespaces with a cable between them; addresses are :data:`SERVER` and :data:`NODE`."""
    tag = f"fu{os.getpid() % 100000}"
    names = {"server": f"{tag}s", "node": f"{tag}n"}
    ends = {"server": f"{tag}a", "node": f"{tag}b"}
    try:
        if shutil.which("ip") is None or not all(ip("netns", "add", one) for one in names.values()):
            pytest.skip("network namespaces are not permitted here")
        cable = ("link", "add", ends["server"], "type", "veth", "peer", "name", ends["node"])
        if not ip(*cable):
            pytest.skip("no veth pair can be made here")
        for who, address in (("server", SERVER), ("node", NODE)):
            assert ip("link", "set", ends[who], "netns", names[who])
            within = ("-n", names[who])
            assert ip(*within, "addr", "add", f"{address}/30", "dev", ends[who])
            assert ip(*within, "link", "set", ends[who], "up")
            assert ip(*within, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names.values():
            ip("netns", "del", name)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_node_reaches_the_gate_and_nothing_else_of_the_server(
    tmp_path: Path, namespaces: dict[str, str]
) -> None:
    tree = tree_of(pocket_world(tmp_path / "world"))
    config = load_config(write_config(tmp_path / "listed.yaml", tree))
    clients_by_hand(config, tmp_path / "hand")
    merge_by_hand(config, tmp_path / "hand")
    held = {"site": list(config.clients)}
    within = {who: ("ip", "netns", "exec", name) for who, name in namespaces.items()}
    at_server = ("superlink", "gate", "register-site", "flwr-run", "flwr-list")
    at_node = ("supernode-site", "check-site", "probe-gate", "probe-link")
    inside = {
        **dict.fromkeys(at_server, within["server"]),
        **dict.fromkeys(at_node, within["node"]),
    }
    processes = Processes(tmp_path / "processes", inside=inside)
    try:
        deployment = SecureDeployment(
            processes, plan_of(held, host=SERVER), tmp_path / "deployment"
        )
        deployment.fill_in(held)
        check = deployment.command("check", "nodes/site/node.toml")

        def answers() -> bool:
            processes.start("probe-gate", check)
            return processes.wait("probe-gate", limit_s=120) == 0

        deployment.start_server(answers=answers)
        deployment.register("site")
        deployment.check("site")
        link = [
            one.replace(f":{deployment.plan.port}", f":{deployment.plan.superlink_port}")
            for one in check
        ]
        processes.start("probe-link", link)
        assert processes.wait("probe-link", limit_s=120) == 1
        assert f"{SERVER}:{deployment.plan.superlink_port} does not answer" in processes.said(
            "probe-link"
        )
        deployment.start_node("site")
        run = unlisted(tmp_path / "run.yaml", tree, clients=3, nodes=1)
        deployment.run(run, tmp_path / "deployed", limit_s=500)
        assert '"finished:completed"' in deployment.statuses()
        assert digests(tmp_path / "deployed") == digests(tmp_path / "hand") != {}
    finally:
        processes.close()
        processes.show_logs()
