"""What Ray leaves behind in a test that runs it: exemptions, and the time to use them."""

import pytest

LEFTOVERS = [
    # Ray leaves the log files and the processes of its helpers to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed file <_io:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    # collected inside the test whose exemptions cover them
    pytest.mark.usefixtures("collected"),
]
