"""Tests a node's way to the server: its key, the server's certificate, and the two clocks."""

import datetime
import socket
import ssl
import stat
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from fedunlearn.deployment.findings import Finding, Findings
from fedunlearn.errors import InputError
from fedunlearn.names import shown

TIMEOUT_S = 10.0
_EARLY_S, _LATE_S = 5.0, 305.0  # a node's signature may be this much ahead or old (Flower 1.42)
_SKEW_S = 2.0
_SOON = datetime.timedelta(days=30)


def host_and_port(text: str) -> tuple[str, int]:
    """Split ``host:port``, the host being a name, an address, or an IPv6 address in brackets.

    Raises:
        InputError: it is not of that form.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"{shown(text)} is no HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def check_key(path: Path) -> Finding:
    """See whether a node's private key can be read, by its owner only, and is of the right sort."""
    make = 'make one: ssh-keygen -t ecdsa -b 384 -N "" -f node.key'
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as fault:
        return Finding("key", "fault", f"{path} cannot be read: {fault.strerror}", make)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a passphrase
        return Finding("key", "fault", f"{path} is no OpenSSH key without passphrase", make)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        return Finding("key", "fault", f"{path} is no elliptic-curve key", make)
    if mode & 0o077:
        text = f"{path} can be read by others (mode {mode:04o})"
        return Finding("key", "fault", text, f"chmod 600 {path}, and make a new one if it was seen")
    return Finding("key", "ok", f"{path}, {key.curve.name}, mode {mode:04o}")


def check_link(address: str, root: Path | None, clock: Callable[[], float]) -> Findings:
    """Connect as a SuperNode would, without saying who one is.

    Args:
        address: ``host:port`` of the server.
        root: certificate of the authority that signed the server's; ``None``: the system's.
        clock: seconds since 1970 by this machine.
    """
    try:
        host, port = host_and_port(address)
        trusted = ssl.create_default_context(cafile=root)
    except (InputError, OSError, ssl.SSLError) as fault:
        text = f"{root} cannot be used: {fault}" if root else str(fault)
        yield Finding("server", "fault", text, "name the private CA's ca.crt and HOST:PORT")
        return
    server = HTTPSConnection(host, port, timeout=TIMEOUT_S, context=trusted)
    try:
        server.connect()
    except ssl.SSLError as fault:
        yield _refused(host, root, fault)
        return
    except OSError as fault:
        text = f"{address} does not answer: {fault.strerror or fault}"
        yield Finding("server", "fault", text, "is it up, and does a firewall let this node pass?")
        return
    try:
        yield _certificate(server.sock, clock())
        yield from _health(server, address, clock)
    finally:
        server.close()


def _refused(host: str, root: Path | None, fault: ssl.SSLError) -> Finding:
    """Say what is wrong with the certificate that the server showed."""
    if not isinstance(fault, ssl.SSLCertVerificationError):
        text = f"no TLS with the server: {fault.reason or fault}"
        return Finding("certificate", "fault", text, "is this the gate's port?")
    if "mismatch" in fault.verify_message or "not valid for" in fault.verify_message:
        text = f"the server's certificate is not valid for {host}: {fault.verify_message}"
        remedy = "connect by a name it has, or make one with this name (deploy init --host)"
    elif "expired" in fault.verify_message or "not yet valid" in fault.verify_message:
        text = f"the server's certificate is not valid now: {fault.verify_message}"
        remedy = "renew it, or set this machine's clock"
    else:
        signer = root or "the system's authorities"
        text = f"the server's certificate is not signed by {signer}: {fault.verify_message}"
        remedy = "get ca.crt from who runs the server, by a way you trust"
    return Finding("certificate", "fault", text, remedy)


def _certificate(connection: socket.socket, now: float) -> Finding:
    der = (
        connection.getpeercert(binary_form=True) if isinstance(connection, ssl.SSLSocket) else None
    )
    if der is None:
        return Finding("certificate", "fault", "the server showed none", "is TLS on?")
    end = x509.load_der_x509_certificate(der).not_valid_after_utc
    left = end - datetime.datetime.fromtimestamp(now, datetime.UTC)
    text = f"signed by the given authority, valid for this name until {end:%Y-%m-%d}"
    if left < _SOON:
        return Finding("certificate", "warning", text, f"renew it within {left.days} days")
    return Finding("certificate", "ok", text)


def _health(server: HTTPSConnection, address: str, clock: Callable[[], float]) -> Findings:
    try:
        before = clock()
        server.request("GET", "/health")
        answer = server.getresponse()
        answer.read()
        after = clock()
    except (OSError, HTTPException) as fault:
        yield Finding("server", "fault", f"{address} does not answer: {fault}", "is it up?")
        return
    if answer.status == 200:
        yield Finding("server", "ok", f"{address} answers")
    else:
        text = f"{address} answers /health with {answer.status}"
        yield Finding("server", "fault", text, "is the SuperLink behind the gate up?")
    yield _clocks(answer.getheader("Date"), before, after)


def _clocks(date: str | None, before: float, after: float) -> Finding:
    """Compare clocks to a second, which is as exact as the header is."""
    try:
        there = parsedate_to_datetime(date or "").timestamp()
    except (TypeError, ValueError):
        text = "the server tells no time, so the clocks cannot be compared"
        return Finding("clock", "warning", text, "see that both machines use NTP")
    ahead = max(0.0, before - there - 1.0) or min(0.0, after - there)
    text = f"this machine is {abs(ahead):.0f} s {'ahead of' if ahead >= 0 else 'behind'} the server"
    if ahead > _EARLY_S or ahead < -_LATE_S:
        why = f"{text}; it refuses signatures {_EARLY_S:.0f} s ahead or {_LATE_S:.0f} s old"
        return Finding("clock", "fault", why, "set the clock (NTP)")
    if abs(ahead) > _SKEW_S:
        return Finding("clock", "warning", text, "set the clock (NTP)")
    return Finding("clock", "ok", "this machine's agrees with the server's")
