"""The same packages run from a Flower app bundle, configs included."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOOK = """
from pathlib import Path
import clients.unlearn, fedunlearn.client_app, fedunlearn.server_app, strategies.firm
from fedunlearn.config import builtin_configs
here = Path.cwd()
for module in (clients.unlearn, fedunlearn.client_app, fedunlearn.server_app, strategies.firm):
    assert Path(module.__file__).is_relative_to(here), module
assert sorted(builtin_configs()) == CONFIGS
assert all(path.is_relative_to(here) for path in builtin_configs().values())
"""


@pytest.mark.slow
def test_a_bundle_holds_all_that_its_apps_import(tmp_path: Path) -> None:
    flwr = Path(sys.executable).with_name("flwr")
    subprocess.run([flwr, "build", "--app", ROOT], cwd=tmp_path, check=True, capture_output=True)
    (bundle,) = tmp_path.glob("*.fab")
    unpacked = tmp_path / "app"
    zipfile.ZipFile(bundle).extractall(unpacked)
    configs = sorted(path.stem for path in (ROOT / "configs").glob("*.yaml"))
    code = LOOK.replace("CONFIGS", repr(configs))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=unpacked, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
