"""Set-up of all tests: nothing calls home, and warnings are errors, with these exceptions."""

import pytest

from fedunlearn.offline import go_offline

go_offline()  # before any test module imports Flower or Ray

TOLERATED = {
    # typer, which Flower caps below 0.21, imports names that click 8.3 announces to drop.
    "ignore:'click.utils.get_:DeprecationWarning",
}


def pytest_configure(config: pytest.Config) -> None:
    """Exempt the warnings above from ``filterwarnings = error``."""
    for line in sorted(TOLERATED):
        config.addinivalue_line("filterwarnings", line)
