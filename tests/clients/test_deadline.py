"""What becomes of a client that takes too long."""

import subprocess
import sys

import pytest

from clients.deadline import time_limit
from fedunlearn.errors import RunError


def test_a_block_within_its_limit_is_left_alone() -> None:
    with time_limit(30.0):
        pass
    with pytest.raises(RunError, match="after its deadline"), time_limit(0.0):
        pytest.fail("the block was entered")


def test_a_hanging_client_ends_its_process_and_says_where_it_hung() -> None:
    code = (
        "import time\nfrom clients.deadline import time_limit\n"
        "with time_limit(0.2):\n    time.sleep(60)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr
    assert "line 4" in ended.stderr
