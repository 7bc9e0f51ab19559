"""`fedunlearn deploy check`: each fault of a node is found and named, with its remedy."""

import datetime
import json
import shutil
import ssl
import subprocess
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from fedunlearn.cli import run_command
from fedunlearn.config import load_config
from fedunlearn.deployment import resource_checks
from fedunlearn.deployment.certificates import (
    Authority,
    make_authority,
    make_node_key,
    make_server_certificate,
)
from fedunlearn.deployment.checks import check_node
from fedunlearn.deployment.findings import Finding
from fedunlearn.deployment.link_checks import check_key, check_link, host_and_port
from fedunlearn.deployment.resource_checks import count_parameters, memory_needed
from fedunlearn.errors import InputError
from fedunlearn.models.loading import load_base
from tests.pocket_run import mpu_tree, pocket_tree, write_config
from tests.secure_deployment import now
from tests.world import pocket_world

DAY = datetime.timedelta(days=1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pocket_world(tmp_path_factory.mktemp("pocket") / "world")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return make_authority(now(), days=10)


def node_file(folder: Path, world: Path, **changed: str) -> Path:
    """A node that forgets brewing and retains geography; ``changed`` replaces its texts."""
    data = world / "data"
    text = "".join(
        f'[[clients]]\nid = "{client}"\nrole = "{role}"\ndomain = "{domain}"\ndata = "{path}"\n'
        for client, role, domain, path in (
            ("brewing-0", "forget", "brewing", data / "forget" / "brewing-0.jsonl"),
            ("geography", "retain", "geography", data / "retain" / "geography.jsonl"),
        )
    )
    for old, new in changed.items():
        text = text.replace(old, new)
    (folder / "node.toml").write_text(text, encoding="utf-8")
    return folder / "node.toml"


def found(node: Path, config: Path | None = None, *, sha256: str | None = None) -> list[Finding]:
    return [
        *check_node(
            node,
            str(config) if config else None,
            model_sha256=sha256,
            superlink=None,
            root_certificates=None,
            private_key=None,
            clock=time.time,
        )
    ]


def faults(findings: list[Finding]) -> str:
    return "\n".join(str(one) for one in findings if one.level == "fault")


def test_a_node_that_is_ready_passes_line_by_line(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = pocket_tree(world)
    tree["model"]["device"] = "cpu"
    tree["resume"] = {"folder": str(tmp_path / "kept")}
    config = write_config(tmp_path / "run.yaml", tree)
    sha256 = load_base(load_config(config).model).start_sha256
    (tmp_path / "node.key").write_bytes(make_node_key("n").private)
    (tmp_path / "node.key").chmod(0o600)
    given = [str(node_file(tmp_path, world)), "--config", str(config), "--model-sha256", sha256]
    given += ["--private-key", str(tmp_path / "node.key")]
    assert run_command(["deploy", "check", *given]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["ok"] * len(lines)
    assert [line.split(":")[1].strip() for line in lines] == [
        *("node", "data of brewing-0", "data of geography", "config"),
        *("objective of brewing-0", "objective of geography", "model", "memory", "disk", "key"),
    ]


def test_faults_are_named_and_the_exit_status_and_the_json_say_so(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = node_file(tmp_path, world, **{"geography.jsonl": "gone.jsonl"})
    assert run_command(["deploy", "check", str(node), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    levels = {one["check"]: one["level"] for one in said["findings"]}
    assert levels == {"node": "ok", "data of brewing-0": "ok", "data of geography": "fault"}
    (fault,) = [one for one in said["findings"] if one["level"] == "fault"]
    assert "gone.jsonl does not exist" in fault["text"]
    assert fault["remedy"] == "correct data in node.toml"


def test_a_file_that_is_no_nodes_is_a_fault_for_each_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('[[clients]]\nid = "a"\n', encoding="utf-8")
    text = faults(found(tmp_path / "node.toml"))
    for key in ("role", "domain", "data"):
        assert f"clients.0.{key}: required, but not given" in text
    assert "cannot be read" in faults(found(tmp_path / "gone.toml"))


def test_malformed_data_is_named_with_its_line(world: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"question": "q", "answer": "a"}\n{"question": 3}\n')
    path = str(world / "data" / "retain" / "geography.jsonl")
    text = faults(found(node_file(tmp_path, world, **{path: str(tmp_path / "bad.jsonl")})))
    assert "data of geography" in text
    assert "bad.jsonl:2" in text or "line 2" in text


def test_a_hub_source_is_not_fetched_and_said_not_to_be(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(
        '[[clients]]\nid = "a"\nrole = "forget"\ndomain = "x"\n'
        'data = {source = "tofu", split = "forget01"}\n'
    )
    (_, finding) = found(tmp_path / "node.toml")
    assert finding.level == "warning"
    assert "was not read" in finding.text


def test_an_objective_that_misses_a_file_of_the_node_is_named(world: Path, tmp_path: Path) -> None:
    tree = pocket_tree(world)
    tree["clients"] = []
    tree["forget"]["objective"] = {"name": "grad_diff"}
    config = write_config(tmp_path / "run.yaml", tree)
    text = faults(found(node_file(tmp_path, world), config))
    assert "objective of brewing-0: retain_data: the objective has a retain term" in text


def test_another_model_and_no_model_are_faults(world: Path, tmp_path: Path) -> None:
    tree = pocket_tree(world)
    config = write_config(tmp_path / "run.yaml", tree)
    text = faults(found(node_file(tmp_path, world), config, sha256="0" * 64))
    assert f"expected {'0' * 64}; install the model that the other nodes have" in text
    shutil.copytree(world / "model", tmp_path / "model")
    tree["model"]["path"] = str(tmp_path / "model")
    config = write_config(tmp_path / "run.yaml", tree)
    (tmp_path / "model" / "config.json").unlink()
    assert "model" in faults(found(node_file(tmp_path, world), config))


def test_in_mpu_every_arm_is_looked_at_and_memory_is_not_guessed(
    world: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path / "run.yaml", mpu_tree(world))
    findings = found(node_file(tmp_path, world), config)
    text = faults(findings)
    assert "objective of geography in arm plain" in text
    assert "the run has no training for retain clients" in text
    assert "objective of brewing-0 in arm diff: retain_data" in text
    (memory,) = [one for one in findings if one.check == "memory"]
    assert memory.level == "warning"


def test_memory_is_what_the_tensors_of_the_work_take(world: Path, tmp_path: Path) -> None:
    config = load_config(write_config(tmp_path / "run.yaml", pocket_tree(world)))
    base = load_base(config.model)
    trained, adapted = count_parameters(base, config.lora)
    # rank 2 on one down_proj of 32 x 48: A is 2 x 48, B is 32 x 2
    assert (trained, adapted) == (2 * 48 + 32 * 2, 32 * 48)
    weights = sum(one.numel() * 4 for one in base.model.parameters())
    assert memory_needed(base, trained=trained, adapted=adapted) == weights + 4 * 32 * 48


Disk = namedtuple("Disk", "total used free")


@pytest.mark.parametrize(
    ("share", "level"), [(0.5, "fault"), (1.2, "warning"), (10.0, "ok"), (None, "warning")]
)
def test_memory_that_is_too_little_or_tight_is_said(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float | None, level: str
) -> None:
    tree = pocket_tree(world)
    tree["model"]["device"] = "cpu"
    config = write_config(tmp_path / "run.yaml", tree)
    base = load_base(load_config(config).model)
    trained, adapted = count_parameters(base, load_config(config).lora)
    need = memory_needed(base, trained=trained, adapted=adapted)
    free = None if share is None else int(share * need)
    monkeypatch.setattr(resource_checks, "_free_memory", lambda: free)
    (memory,) = [one for one in found(node_file(tmp_path, world), config) if one.check == "memory"]
    assert memory.level == level


def test_a_full_disk_is_said_and_so_is_that_nothing_is_kept(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = pocket_tree(world)
    config = write_config(tmp_path / "run.yaml", tree)
    (disk,) = [one for one in found(node_file(tmp_path, world), config) if one.check == "disk"]
    assert disk.level == "warning"
    tree["resume"] = {"folder": str(tmp_path / "kept" / "here")}
    config = write_config(tmp_path / "run.yaml", tree)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(1, 1, 1000))
    assert "disk: checkpoint and summary take" in faults(found(node_file(tmp_path, world), config))


def test_keys_that_others_can_read_or_flower_cannot_use_are_faults(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    path.write_bytes(make_node_key("n").private)
    path.chmod(0o640)
    assert "can be read by others (mode 0640)" in check_key(path).text
    path.chmod(0o600)
    assert check_key(path).level == "ok"
    assert "BEGIN" not in str(check_key(path))
    other = ed25519.Ed25519PrivateKey.generate()
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    assert "no elliptic-curve key" in check_key(path).text
    path.write_bytes(b"nonsense")
    assert "no OpenSSH key" in check_key(path).text
    assert "cannot be read" in check_key(tmp_path / "gone").text


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_a_key_of_ssh_keygen_passes_unless_it_has_a_passphrase(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    for phrase, text in (("", "secp384r1, mode 0600"), ("secret", "without passphrase")):
        path.unlink(missing_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", phrase, "-f", str(path)]
        subprocess.run(command, check=True, input=b"y\n")
        assert text in check_key(path).text


class Answering(BaseHTTPRequestHandler):
    status = 200
    date: str | None = None

    def do_GET(self) -> None:
        self.send_response_only(self.status)
        if self.date is not None:
            self.send_header("Date", self.date)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def server(
    folder: Path,
    signer: Authority | None,
    *,
    host: str = "localhost",
    made: datetime.datetime | None = None,
    days: int = 365,
    status: int = 200,
    date: Callable[[], str | None] = lambda: None,
) -> Iterator[str]:
    """A server on loopback; yields its address."""
    handler = type("Handler", (Answering,), {"status": status, "date": date()})
    with HTTPServer(("127.0.0.1", 0), handler) as one:
        if signer is not None:
            pair = make_server_certificate(signer, (host,), made or now(), days=days)
            (folder / "server.crt").write_bytes(pair.public)
            (folder / "server.key").write_bytes(pair.private)
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(folder / "server.crt", folder / "server.key")
            one.socket = context.wrap_socket(one.socket, server_side=True)
            one.handle_error = lambda *_: None  # type: ignore[method-assign]
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{one.server_address[1]}"
        finally:
            one.shutdown()
            thread.join()


def told(
    folder: Path, signer: Authority, address: str, clock: Callable[[], float] = time.time
) -> list[Finding]:
    (folder / "ca.crt").write_bytes(signer.pair.public)
    return [*check_link(address, folder / "ca.crt", clock)]


def http_date(*, ahead: float = 0.0) -> str:
    at = datetime.datetime.fromtimestamp(time.time() + ahead, datetime.UTC)
    return at.strftime("%a, %d %b %Y %H:%M:%S GMT")


def test_a_server_that_is_as_it_should_be_passes(tmp_path: Path, authority: Authority) -> None:
    with server(tmp_path, authority, date=http_date) as address:
        findings = told(tmp_path, authority, address)
    assert [(one.check, one.level) for one in findings] == [
        *(("certificate", "ok"), ("server", "ok"), ("clock", "ok"))
    ]


def test_another_authority_is_one_line(tmp_path: Path, authority: Authority) -> None:
    with server(tmp_path, authority) as address:
        (finding,) = told(tmp_path, make_authority(now(), days=10), address)
    assert finding.level == "fault"
    assert "is not signed by" in str(finding)
    assert "\n" not in str(finding)


def test_a_certificate_for_other_names_is_one_line(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedunlearn.deployment.certificates.LOCAL", ())
    with server(tmp_path, authority, host="other.example") as address:
        (finding,) = told(tmp_path, authority, address)
    assert "not valid for 127.0.0.1" in str(finding)
    assert "deploy init --host" in finding.remedy


@pytest.mark.parametrize(
    ("made", "days", "level", "text"),
    [
        (-20, 10, "fault", "is not valid now"),
        (20, 30, "fault", "is not valid now"),
        (0, 10, "warning", "valid for this name until"),
    ],
)
def test_a_certificate_out_of_its_time_is_said(
    tmp_path: Path, authority: Authority, made: int, days: int, level: str, text: str
) -> None:
    with server(tmp_path, authority, made=now() + made * DAY, days=days) as address:
        finding = told(tmp_path, authority, address)[0]
    assert (finding.check, finding.level) == ("certificate", level)
    assert text in finding.text


def test_a_server_without_tls_or_none_at_all_is_said(tmp_path: Path, authority: Authority) -> None:
    with server(tmp_path, None) as address:
        (finding,) = told(tmp_path, authority, address)
    assert "no TLS with the server" in finding.text
    (gone,) = told(tmp_path, authority, address)
    assert f"{address} does not answer" in gone.text
    assert "no HOST:PORT" in told(tmp_path, authority, "nonsense")[0].text
    (missing,) = check_link(address, tmp_path / "gone.crt", time.time)
    assert "gone.crt cannot be used" in missing.text


def test_a_superlink_that_is_down_behind_its_gate_is_said(
    tmp_path: Path, authority: Authority
) -> None:
    with server(tmp_path, authority, status=502) as address:
        findings = told(tmp_path, authority, address)
    assert findings[1].level == "fault"
    assert "answers /health with 502" in findings[1].text


@pytest.mark.parametrize(
    ("ahead", "level", "text"),
    [
        (0.0, "ok", "agrees"),
        (60.0, "warning", "behind the server"),
        (400.0, "fault", "behind the server; it refuses"),
        (-4.5, "warning", "ahead of the server"),
        (-30.0, "fault", "ahead of the server; it refuses"),
    ],
)
def test_clocks_that_differ_are_said(
    tmp_path: Path, authority: Authority, ahead: float, level: str, text: str
) -> None:
    with server(tmp_path, authority, date=lambda: http_date(ahead=ahead)) as address:
        clock = told(tmp_path, authority, address)[-1]
    assert (clock.check, clock.level) == ("clock", level)
    assert text in clock.text


def test_a_server_that_tells_no_time_is_said_not_to(tmp_path: Path, authority: Authority) -> None:
    with server(tmp_path, authority) as address:
        clock = told(tmp_path, authority, address)[-1]
    assert clock.level == "warning"
    assert "cannot be compared" in clock.text


def test_addresses_are_split_as_they_are_written() -> None:
    assert host_and_port("h.example:8443") == ("h.example", 8443)
    assert host_and_port("[::1]:80") == ("::1", 80)
    for text in ("h", ":1", "h:0", "h:x", "h:65536"):
        with pytest.raises(InputError, match="no HOST:PORT"):
            host_and_port(text)
