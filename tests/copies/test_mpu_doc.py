"""docs/MPU.md says what the code does."""

import contextlib
import io
import re
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "docs" / "MPU.md").read_text(encoding="utf-8")


def test_the_python_example_averages_the_noise_away() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "MPU.md", "exec"), {})  # noqa: S102 - our own page
    assert 0 < float(printed.getvalue()) < 1e-6
