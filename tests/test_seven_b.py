"""The 7B benchmark at a size that any CPU holds."""

from pathlib import Path

import pytest

from benchmarks import seven_b
from fedunlearn.aggregation import read_merge

PICO = ["--layers", "2", "--hidden", "32", "--inner", "48", "--heads", "4", "--kv-heads", "2"]
PICO += ["--vocabulary", "512", "--tokens", "16", "--examples", "4", "--fisher-sequences", "3"]
PICO += ["--adapted-layers", "0", "1", "--device", "cpu"]


def test_every_stage_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = seven_b.main([str(tmp_path), *PICO, "--quantization", "none", "--dtype", "float32"])
    stages = [f"{name}: {work}" for name in ("bio", "cyber", "general") for work in WORK]
    assert list(rows) == ["write the random model", "load the model", *stages, "merge and project"]
    assert all(seconds >= 0 and peak > 0 for seconds, peak in rows.values())
    merged = read_merge(tmp_path / "merged")
    assert sorted(merged.delta) == [f"model.layers.{n}.mlp.down_proj.weight" for n in (0, 1)]
    said = capsys.readouterr().out
    assert "upload of a client" in said
    assert all(stage in said for stage in rows)


WORK = ("train 1 steps", "Fisher pass", "encode and decode")


def test_on_a_4_bit_copy_of_a_bfloat16_model(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    wide = [*PICO, "--hidden", "64", "--inner", "128"]
    assert "general: Fisher pass" in seven_b.main([str(tmp_path), *wide])
