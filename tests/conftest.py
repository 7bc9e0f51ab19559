"""Set-up of all tests: nothing calls home, and warnings are errors, with these exceptions."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedunlearn.offline import go_offline

go_offline()  # before any test module imports Flower or Ray

from tests.deployment import Processes  # noqa: E402

TOLERATED = {
    # typer, which Flower caps below 0.21, imports names that click 8.3 announces to drop.
    "ignore:'click.utils.get_:DeprecationWarning",
}


def pytest_configure(config: pytest.Config) -> None:
    """Exempt the warnings above from ``filterwarnings = error``."""
    for line in sorted(TOLERATED):
        config.addinivalue_line("filterwarnings", line)


@pytest.fixture
def collected() -> Iterator[None]:
    """Collect garbage at the end of the test."""
    yield
    gc.collect()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Programs that are ended with the test, whatever happens, and whose logs are then shown."""
    started = Processes(tmp_path / "processes")
    try:
        yield started
    finally:
        try:
            started.close()
        finally:
            started.show_logs()
