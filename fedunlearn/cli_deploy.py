"""The commands of a deployment: ``fedunlearn deploy init | check | gate``."""

from pathlib import Path
from typing import Annotated

import typer

deploy = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    suggest_commands=False,
    help="Set a deployment up, check a node, guard the SuperLink.",
)


@deploy.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make.")],
    host: Annotated[
        list[str],
        typer.Option(help="Name or address under which nodes reach the server; may be repeated."),
    ],
    node: Annotated[
        list[str] | None,
        typer.Option(help="ID:ROLE:DOMAIN, or NAME=ID:ROLE:DOMAIN,ID:ROLE:DOMAIN for several."),
    ] = None,
    nodes: Annotated[
        Path | None, typer.Option(help="The same as YAML: name to a list of id, role, domain.")
    ] = None,
    port: Annotated[int, typer.Option(help="Port of the gate, for the nodes.")] = 8443,
    superlink_port: Annotated[int, typer.Option(help="Port on the server's loopback.")] = 8000,
    node_port: Annotated[int, typer.Option(help="Port on the first node's loopback.")] = 9101,
    days: Annotated[int, typer.Option(help="Validity of the server's certificate.")] = 365,
) -> None:
    """Write keys, certificates, node files, systemd units, compose files and a README."""
    from fedunlearn import deploy_commands

    deploy_commands.init(
        folder,
        host,
        node or (),
        nodes,
        port=port,
        superlink_port=superlink_port,
        node_port=node_port,
        days=days,
    )


@deploy.command()
def check(
    node: Annotated[Path, typer.Argument(metavar="NODE.toml", help="The node's file.")],
    config: Annotated[
        str | None, typer.Option(help="The run's config: its objective, model and folders.")
    ] = None,
    model_sha256: Annotated[
        str | None, typer.Option(help="Hash that the model must have; the server's check shows it.")
    ] = None,
    superlink: Annotated[str | None, typer.Option(help="HOST:PORT of the gate.")] = None,
    root_certificates: Annotated[
        Path | None, typer.Option(help="The private CA's certificate, ca.crt.")
    ] = None,
    private_key: Annotated[Path | None, typer.Option(help="The node's key, node.key.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False,
) -> int:
    """Test a node before a run: a line a check; exit status 1 if one finds a fault."""
    from fedunlearn import deploy_check

    return deploy_check.check(
        node,
        config,
        model_sha256=model_sha256,
        superlink=superlink,
        root_certificates=root_certificates,
        private_key=private_key,
        as_json=as_json,
    )


@deploy.command()
def gate(
    listen: Annotated[str, typer.Option(help="ADDRESS:PORT that nodes connect to.")],
    superlink: Annotated[str, typer.Option(help="ADDRESS:PORT of the SuperLink.")],
    certificate: Annotated[Path, typer.Option(help="The server's certificate.")],
    key: Annotated[Path, typer.Option(help="Its private key.")],
    root_certificates: Annotated[Path, typer.Option(help="The private CA's certificate.")],
) -> None:
    """Pass on the nodes' calls to the SuperLink, and nothing else."""
    from fedunlearn import deploy_commands

    deploy_commands.gate(
        listen,
        superlink,
        certificate=certificate,
        key=key,
        root_certificates=root_certificates,
    )
