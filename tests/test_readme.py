"""The README's claims: its links, its code, its commands, and the result it shows."""

import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from fedunlearn.cli import run_command

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_every_link_to_a_file_leads_somewhere() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_python_example_prints_what_it_says() -> None:
    (code,) = blocks("python")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - our own README
    assert "0.7071, 0.7071" in printed.getvalue()
    assert "(1.828" in printed.getvalue()


def test_every_command_and_option_it_names_exists() -> None:
    text = "\n".join(blocks("bash")).replace("\\\n", " ")
    commands = re.findall(r"^fedunlearn (\w+)(.*)$", text, flags=re.MULTILINE)
    assert {name for name, _ in commands} == {
        *("check", "run", "resume", "merge", "export", "sweep", "compare", "list"),
        *("evaluate", "retrain", "probe", "deploy", "verify"),
    }
    for name, rest in commands:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            parts = [name, *rest.split()[:1]] if name == "deploy" else [name]
            assert run_command([*parts, "--help"]) == 0
        for option in re.findall(r"--\w+", rest.split("#")[0]):
            assert option in shown.getvalue(), f"fedunlearn {name} {option}"


def test_the_scripts_it_names_can_be_run() -> None:
    for script in re.findall(r"^(scripts/\w+)", "\n".join(blocks("bash")), flags=re.MULTILINE):
        assert (ROOT / script).stat().st_mode & 0o111, script


def fedunlearn(*arguments: str, folder: Path) -> str:
    """Run the console script as a user does; return what it printed on stdout."""
    command = [str(Path(sys.executable).with_name("fedunlearn")), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo, whole, as `scripts/demo` starts it."""
    folder = tmp_path_factory.mktemp("demo")
    shown = fedunlearn("run", f"world.directory={folder / 'world'}", "--out", "run", folder=folder)
    assert "base and merged models" in shown
    return folder


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_demo_forgets_what_it_must_and_keeps_the_rest(demo: Path) -> None:
    report = json.loads((demo / "run" / "report.json").read_text(encoding="utf-8"))
    base, firm = report["base"], report["scores"]["firm"]

    def recall(sets: dict[str, dict[str, dict[str, float]]], name: str) -> float:
        return sets[name]["rouge_l_recall"]["mean"]

    assert all(recall(base, name) >= 0.95 for name in base)
    assert recall(firm, "brewing") <= 0.35
    assert recall(firm, "signals") <= 0.35
    assert recall(firm, "geography") >= 0.85
    assert recall(firm, "biography") >= 0.85
    assert recall(firm, "utility") >= recall(base, "utility") - 0.05
    assert set(report["scores"]) == {"firm", "firm_base", "avg", "sum", "ties"}
    assert (demo / "run" / "forgetting_vs_kept.png").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_what_comes_after_the_run_needs_no_client(demo: Path) -> None:
    fedunlearn(
        *("merge", "run", "--method", "firm", "--gamma", "2.5", "--alpha", "0.1"),
        *("--epsilon", "relative:0.3", "--out", "merged"),
        folder=demo,
    )
    stored = (demo / "run" / "merged" / "firm" / "delta.safetensors").read_bytes()
    assert (demo / "merged" / "delta.safetensors").read_bytes() == stored
    for form, rank in (("model", ()), ("adapter", ("--rank", "128"))):
        fedunlearn(
            *("export", "run", "--method", "firm", "--as", form, *rank, "--out", form), folder=demo
        )
    ids = torch.arange(5, 40)[None]
    with torch.no_grad():
        model = AutoModelForCausalLM.from_pretrained(demo / "model")
        base = AutoModelForCausalLM.from_pretrained(demo / "world" / "model")
        untouched = base(input_ids=ids).logits
        adapted = PeftModel.from_pretrained(base, demo / "adapter")
        exported = model(input_ids=ids).logits
        torch.testing.assert_close(adapted(input_ids=ids).logits, exported, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(exported, untouched, atol=0.1)
