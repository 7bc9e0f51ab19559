"""How the embedded demo's settings were chosen, one change at a time; prints a Markdown table.

Two worlds are searched, neither of them the one the demo runs on, and the utility set is taken
out of the evaluation, so it cannot have been looked at. Run it from anywhere with fedunlearn
installed: ``python benchmarks/demo_search.py FOLDER`` (one to two minutes a run on two CPU cores;
runs already there are not repeated).
"""

import json
import subprocess
import sys
from pathlib import Path

import yaml

from fedunlearn.config import builtin_configs

FIRST, SECOND = 1, 2
GAMMAS = [1.5, 4.0]
VARIANTS: dict[str, dict[str, object]] = {
    "as in the demo": {},
    "forget clients train to saturation": {"forget.stop_at_loss": None},
    "forget clients stop later": {"forget.stop_at_loss": 6.0},
    "Fisher over every token": {"fisher.targets": "sequence"},
    "gate_proj and up_proj adapted too": {
        "lora.target_modules": ["gate_proj", "up_proj", "down_proj"]
    },
    "two blocks adapted": {"lora.layers": [1, 2]},
    "30 percent of the Fisher kept": {"merges.firm.alpha": 0.3, "merges.firm_base.alpha": 0.3},
    "gradient ascent": {"forget.objective": {"name": "grad_ascent"}},
}


def main(folder: Path) -> None:
    """Run every variant on every world and print a row for each."""
    folder.mkdir(parents=True, exist_ok=True)
    print("| world | change | merge | gamma | brewing | signals | retain |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    plan = [(FIRST, change) for change in VARIANTS]
    plan.insert(1, (SECOND, next(iter(VARIANTS))))
    for world, change in plan:
        run = folder / f"world{world}-{change.replace(' ', '-')}"
        if not (run / "report.json").is_file():
            config = write_config(folder, world, VARIANTS[change])
            command = ["fedunlearn", "run", str(config), "--out", str(run), "--quiet"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for row in rows(run):
            print(f"| {world} | {change} | {row}", flush=True)


def write_config(folder: Path, world: int, values: dict[str, object]) -> Path:
    """The demo on another world, FIRM only, without the utility set."""
    tree = yaml.safe_load(builtin_configs()["firm_demo"].read_text(encoding="utf-8"))
    tree["world"]["directory"] = str(folder / f"world{world}")
    tree["world"]["size"]["seed"] = world
    tree["evaluation"]["sets"] = [s for s in tree["evaluation"]["sets"] if s["kind"] != "utility"]
    tree["merges"] = {name: tree["merges"][name] for name in ("firm", "firm_base")}
    tree["sweep"] = {"gammas": dict.fromkeys(tree["merges"], GAMMAS)}
    for key, value in values.items():
        *parents, last = key.split(".")
        branch = tree
        for parent in parents:
            branch = branch[parent]
        branch[last] = value
    path = folder / f"world{world}.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


def rows(run: Path) -> list[str]:
    """ROUGE-L recall of every merge and gamma of a run."""
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    found = []
    for point in report["sweep"]:
        recall = {name: one["rouge_l_recall"]["mean"] for name, one in point["sets"].items()}
        retain = (recall["geography"] + recall["biography"]) / 2
        found.append(
            f"{point['merge']} | {point['gamma']:g} | {recall['brewing']:.2f} | "
            f"{recall['signals']:.2f} | {retain:.2f} |"
        )
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
