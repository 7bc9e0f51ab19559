"""What `fedunlearn deploy init` writes: whole, private, valid, and as the README says."""

import datetime
import json
import shlex
import shutil
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedunlearn.cli import run_command
from fedunlearn.deployment import DeploymentPlan, parse_node, read_nodes, write_deployment, writing
from fedunlearn.errors import ConfigError, InputError
from fedunlearn.node_config import read_node_file
from tests.secure_deployment import now, written_commands

NODES = ("clinic-1:forget:records", 'hospital=h-f:forget:onco "x",h-r:retain:general')
PLAN = DeploymentPlan(
    ("unlearn.example.org", "192.0.2.7"), tuple(parse_node(node) for node in NODES)
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deployment") / "made"
    write_deployment(PLAN, folder, clock=now)
    return folder


def test_the_command_writes_all_of_it_and_shows_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "more.yaml").write_text(
        "archive:\n- {id: archive, role: retain, domain: general}\n", encoding="utf-8"
    )
    given = [*("--host", "h.example", "--host", "::1", "--nodes", str(tmp_path / "more.yaml"))]
    given += [word for node in NODES for word in ("--node", node)]
    assert run_command(["deploy", "init", str(tmp_path / "made"), *given]) == 0
    said = capsys.readouterr()
    assert said.out == f"{tmp_path / 'made' / 'README.md'} says what comes next\n"
    assert said.err == ""
    assert sorted(one.name for one in (tmp_path / "made" / "nodes").iterdir()) == [
        *("archive", "clinic-1", "hospital")
    ]


def test_keys_are_for_their_owner_only_whatever_the_umask(written: Path) -> None:
    for path in [written, *written.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        wanted = 0o700 if path.is_dir() else 0o600 if path.suffix == ".key" else 0o644
        assert mode == wanted, path
    secrets = [path for path in written.rglob("*") if path.suffix == ".key"]
    assert len(secrets) == 1 + 1 + len(NODES)
    for path in written.rglob("*"):
        if path.is_file() and path not in secrets:
            assert b"PRIVATE KEY" not in path.read_bytes(), path


def test_no_key_is_made_twice(written: Path, tmp_path: Path) -> None:
    write_deployment(PLAN, tmp_path / "other", clock=now)
    keys = [
        path.read_bytes() for root in (written, tmp_path / "other") for path in root.rglob("*.key")
    ]
    assert len(set(keys)) == len(keys) == 8


def test_the_servers_certificate_has_its_names_and_is_signed_by_the_authority(
    written: Path,
) -> None:
    read = x509.load_pem_x509_certificate
    root = read((written / "authority" / "ca.crt").read_bytes())
    server = read((written / "superlink" / "server.crt").read_bytes())
    server.verify_directly_issued_by(root)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["unlearn.example.org", "localhost"]
    addresses = [str(one) for one in names.get_values_for_type(x509.IPAddress)]
    assert addresses == ["192.0.2.7", "127.0.0.1", "::1"]
    left = server.not_valid_after_utc - now()
    assert datetime.timedelta(days=364) < left < datetime.timedelta(days=366)
    assert server.not_valid_before_utc < now()
    basics = x509.BasicConstraints
    assert root.extensions.get_extension_for_class(basics).value.ca
    assert not server.extensions.get_extension_for_class(basics).value.ca
    given = (written / "authority" / "ca.crt").read_bytes()
    for folder in ("superlink", "nodes/clinic-1", "nodes/hospital"):
        assert (written / folder / "ca.crt").read_bytes() == given
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
        written / "superlink" / "server.crt", written / "superlink" / "server.key"
    )


def test_a_nodes_key_is_of_the_sort_flower_takes_and_the_server_has_its_public_half(
    written: Path,
) -> None:
    for name in ("clinic-1", "hospital"):
        key = load_ssh_private_key((written / "nodes" / name / "node.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert key.curve.name == "secp384r1"
        public = load_ssh_public_key((written / "superlink/keys" / f"{name}.pub").read_bytes())
        assert public == key.public_key()


def test_a_nodes_file_holds_its_clients_and_nobody_elses(written: Path) -> None:
    (clinic,) = read_node_file(written / "nodes" / "clinic-1" / "node.toml")
    assert (clinic.id, clinic.role, clinic.domain) == ("clinic-1", "forget", "records")
    forget, retain = read_node_file(written / "nodes" / "hospital" / "node.toml")
    assert (forget.id, forget.domain) == ("h-f", 'onco "x"')
    assert (retain.id, retain.role) == ("h-r", "retain")
    server = "".join(
        path.read_text() for path in (written / "superlink").rglob("*") if path.is_file()
    )
    assert "h-f" not in server
    assert "records" not in server


def test_nothing_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="never replaces keys"):
        write_deployment(PLAN, tmp_path / "there", clock=now)
    assert list(tmp_path.iterdir()) == [tmp_path / "there"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot be written"):
        write_deployment(PLAN, tmp_path / "file" / "made", clock=now)


def test_a_deployment_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = writing._write, []

    def full_disk(root: Path, path: Path, content: str | bytes) -> None:
        calls.append(path)
        if len(calls) == 8:
            raise OSError(28, "No space left on device")
        real(root, path, content)

    monkeypatch.setattr(writing, "_write", full_disk)
    with pytest.raises(InputError, match="No space left"):
        write_deployment(PLAN, tmp_path / "made", clock=now)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (["a:forget"], "expected NAME:ROLE:DOMAIN"),
        (["a:forgets:x"], "role 'forgets' is none of forget, retain"),
        (["a:forget:x", "a:retain:y"], "node 'a' is there 2 times"),
        (["n=a:forget:x,a:retain:y"], "client id 'a' is there 2 times"),
        (["../a:forget:x"], "node '../a' must be 1-64 letters"),
        (["a:forget:x/y"], "domain 'x/y' must be 1-64 printable"),
        ([], "name at least one"),
    ],
)
def test_a_bad_plan_is_refused_by_name(given: list[str], fault: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        DeploymentPlan(("h",), tuple(map(parse_node, given)))
    assert fault in str(caught.value)
    nodes = [word for node in given for word in ("--node", node)]
    assert run_command(["deploy", "init", str(tmp_path / "made"), "--host", "h", *nodes]) == 2
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("- a", "expected the nodes' names"),
        ("a: b", "node 'a': expected a list of clients"),
        ("a: [{id: a, role: forget}]", "node 'a': expected id, role and domain"),
        ("a: [{id: 1, role: forget, domain: x}]", "must be texts"),
        ("a: [", "cannot be read"),
    ],
)
def test_a_bad_file_of_nodes_is_refused_by_name(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "nodes.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=fault):
        read_nodes(tmp_path / "nodes.yaml")


def test_units_and_compose_files_have_the_readmes_commands(written: Path) -> None:
    """The same programs with the same options, on the paths where the files are installed."""
    commands = written_commands((written / "README.md").read_text())
    pairs = [
        ("superlink", "fedunlearn-superlink.service", "superlink", "flower-superlink"),
        ("superlink", "fedunlearn-gate.service", "gate", "deploy gate"),
        ("nodes/hospital", "fedunlearn-supernode.service", "supernode", "flower-supernode"),
    ]
    for folder, unit, service, start in pairs:
        installed = [
            [word.replace(str(written / folder), "/etc/fedunlearn") for word in command]
            for command in commands
            if start in " ".join(command)
            and (service != "supernode" or folder in " ".join(command))
        ]
        composed = json.loads((written / folder / "compose.yaml").read_text())
        assert installed == [composed["services"][service]["command"]]
        (line,) = [
            one.removeprefix("ExecStart=/opt/fedunlearn/bin/")
            for one in (written / folder / unit).read_text().splitlines()
            if one.startswith("ExecStart")
        ]
        assert shlex.split(line) == installed[0]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_units(written: Path, tmp_path: Path) -> None:
    for unit in written.rglob("*.service"):
        text = unit.read_text().replace("/opt/fedunlearn/bin/", f"{Path(sys.executable).parent}/")
        (tmp_path / unit.name).write_text(text.replace("User=fedunlearn", "User=root"))
    units = sorted(map(str, tmp_path.glob("*.service")))
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not any(Path(unit).name in done.stderr for unit in units), done.stderr
