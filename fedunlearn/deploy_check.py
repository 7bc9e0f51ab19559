"""What ``deploy check`` does once the command line is read."""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from fedunlearn.deployment.checks import check_node


def check(
    node: Path,
    config: str | None,
    *,
    model_sha256: str | None,
    superlink: str | None,
    root_certificates: Path | None,
    private_key: Path | None,
    as_json: bool,
) -> int:
    """Test a node, show what was found, and return the exit status."""
    findings = []
    for finding in check_node(
        node,
        config,
        model_sha256=model_sha256,
        superlink=superlink,
        root_certificates=root_certificates,
        private_key=private_key,
        clock=time.time,
    ):
        findings.append(finding)
        if not as_json:
            print(finding, flush=True)
    if as_json:
        json.dump({"node": str(node), "findings": [asdict(one) for one in findings]}, sys.stdout)
        print()
    return int(any(finding.level == "fault" for finding in findings))
