import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from fedunlearn.aggregation import MergeSettings, read_merge
from fedunlearn.config import RunConfig, load_config
from fedunlearn.errors import ConfigError, DataError, InputError, RunError
from fedunlearn.models.loading import load_base
from fedunlearn.pipeline import finish, prepare
from fedunlearn.report import Report, read_report
from fedunlearn.rounds import ClientFailure
from fedunlearn.summary import open_summaries
from fedunlearn.sweeping import MergeBench, plan_trials
from tests.pocket_run import pocket_tree, run_clients, write_config
from tests.world import POCKET, POCKET_WORLD, pocket_world

POCKET_SETTINGS = {
    "size": asdict(POCKET_WORLD),
    "model": asdict(POCKET),
    "epochs": 1,
    "threads": 1,
}
Run = tuple[Path, RunConfig, Report]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pocket_world(tmp_path_factory.mktemp("pocket") / "world")


@pytest.fixture(scope="module")
def finished(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in which one forget client failed."""
    folder = tmp_path_factory.mktemp("finished")
    config = load_config(write_config(folder / "c.yaml", pocket_tree(world)), local=True)
    run_dir = folder / "run"
    prepare(config, run_dir)
    failed = ClientFailure("brewing-1", "forget", "brewing", "the disk is full")
    run_clients(config, run_dir, failed=(failed,))
    return run_dir, config, finish(run_dir, config, warnings=(f"{failed}; {failed.consequence}",))


def test_everything_a_run_promises_is_there(finished: Run) -> None:
    run_dir, config, _ = finished
    for name in ("config.yaml", "events.jsonl", "report.json", "report.md"):
        assert (run_dir / name).is_file(), name
    assert list(run_dir.glob("*.png"))
    for merge in config.merges:
        folder = run_dir / "merged" / merge
        assert {one.name for one in folder.iterdir()} == {"delta.safetensors", "merge.json"}


def test_the_config_beside_the_result_is_the_one_that_ran(finished: Run) -> None:
    run_dir, config, _ = finished
    assert load_config(run_dir / "config.yaml") == config


def test_the_report_on_disk_is_the_one_returned(finished: Run) -> None:
    run_dir, _, report = finished
    assert read_report(run_dir) == report
    json.loads((run_dir / "report.json").read_text(encoding="utf-8"))


def test_clients_and_their_uploads_are_reported(finished: Run) -> None:
    _, _, report = finished
    assert [client.client_id for client in report.clients] == [
        "brewing-0",
        "geography",
        "signals-0",
    ]
    first = report.clients[0]
    assert (first.role, first.domain, first.objective) == ("forget", "brewing", "npo")
    assert first.num_examples == 4
    assert first.training["steps"] == 1
    hidden, inner, rank = 32, 48, 2
    assert first.bytes_uploaded == 4 * rank * (hidden + inner) + 2 * hidden * inner


def test_a_missing_client_is_named_once_with_what_follows(finished: Run) -> None:
    _, _, report = finished
    (missing,) = report.missing
    assert (missing.client_id, missing.role, missing.domain) == ("brewing-1", "forget", "brewing")
    assert missing.reason == "the disk is full"
    assert "is not unlearned" in missing.consequence
    assert report.warnings == ()


def test_base_and_every_merge_are_measured_on_every_set(finished: Run) -> None:
    _, config, report = finished
    names = [one.name for one in config.evaluation.sets]
    assert list(report.base) == names
    assert list(report.scores) == list(config.merges)
    for measured in report.scores.values():
        assert list(measured) == names
        for one in measured.values():
            assert one.rouge_l_recall is not None
            assert one.choice_accuracy is not None
            assert one.rouge_l_recall.n == one.choice_accuracy.n > 0
            assert one.extraction_strength is not None
            assert one.truth_ratio is not None


def test_only_configured_gammas_get_a_truth_ratio(finished: Run) -> None:
    _, config, report = finished
    for point in report.sweep:
        configured = point.gamma == config.merges[point.merge].gamma
        for one in point.sets.values():
            assert (one.truth_ratio is not None) is configured


def test_the_sweep_has_every_gamma_and_the_configured_one(finished: Run) -> None:
    _, config, report = finished
    points = [(point.merge, point.gamma) for point in report.sweep]
    assert points == [(name, gamma) for name in config.merges for gamma in (0.5, 1.0, 2.0)]
    configured = next(p for p in report.sweep if (p.merge, p.gamma) == ("sum", 1.0))
    assert configured.sets == report.scores["sum"]
    norms = {p.gamma: p.norm for p in report.sweep if p.merge == "sum"}
    assert norms[2.0] == pytest.approx(2 * norms[1.0], rel=1e-5)


def test_the_projection_bites_and_the_report_shows_it(finished: Run) -> None:
    _, _, report = finished
    firm, base = report.merges["firm"], report.merges["firm_base"]
    assert firm.epsilon is not None
    assert base.epsilon is None
    budget = firm.epsilon["geography"]
    assert firm.constrained_tensors == firm.tensors == 1
    assert firm.uncertified_tensors == 0
    assert firm.largest_damage["geography"] <= budget
    assert base.largest_damage["geography"] == pytest.approx(budget / 0.3, rel=1e-4)
    assert firm.norm < firm.raw_norm == pytest.approx(base.norm, rel=1e-6)


def test_a_relative_budget_stays_the_same_number_while_gamma_varies(finished: Run) -> None:
    run_dir, config, _ = finished
    bench, chosen = MergeBench(open_summaries(run_dir / "summaries")), config.merges["firm"]
    own, double = (bench.merge(chosen, gamma=gamma).report for gamma in (1.0, 2.0))
    assert own.epsilon_resolved == double.epsilon_resolved
    for report in (own, double):
        (tensor,) = report.tensors.values()
        budget = own.epsilon_resolved["geography"]
        assert tensor.damage_after["geography"] == pytest.approx(budget, rel=1e-5)


def test_firm_and_firm_base_are_compared_with_the_baseline(finished: Run) -> None:
    _, _, report = finished
    pairs = {(c.setting.merge, c.other.merge) for c in report.comparisons}
    assert pairs == {("firm", "firm_base"), ("firm", "sum"), ("firm_base", "sum")}


def test_finishing_again_gives_the_same_report_and_bits(finished: Run) -> None:
    run_dir, config, report = finished
    before = read_merge(run_dir / "merged" / "firm").delta
    again = finish(run_dir, config)
    assert again == report
    after = read_merge(run_dir / "merged" / "firm").delta
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_base_model_on_disk_is_untouched(finished: Run) -> None:
    _, config, report = finished
    assert load_base(config.model).sha256 == report.run.base_model_sha256


def test_progress_ends_at_its_total(finished: Run, world: Path) -> None:
    run_dir, config, _ = finished
    seen = list[tuple[int, int]]()
    finish(run_dir, config, watcher=_Recorder(seen))
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len({total for _, total in seen}) == 1


class _Recorder:
    def __init__(self, seen: list[tuple[int, int]]) -> None:
        self._seen = seen

    def stage(self, title: str) -> "_Recorder":
        return self

    def __enter__(self) -> "_Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __call__(self, done: int, total: int) -> None:
        self._seen.append((done, total))

    def note(self, text: str) -> None:
        raise NotImplementedError


def test_another_base_model_is_refused(finished: Run, world: Path) -> None:
    run_dir, _, _ = finished
    other = load_config(run_dir / "config.yaml", ["model.dtype=bfloat16"])
    with pytest.raises(RunError, match="same model, dtype and expert"):
        finish(run_dir, other)


def test_without_retain_client_the_report_says_so(world: Path, tmp_path: Path) -> None:
    tree = pocket_tree(world)
    tree["clients"] = tree["clients"][:1]
    tree["merges"] = {"firm": {"epsilon": {"relative": 0.3}}}
    tree["evaluation"]["sets"] = tree["evaluation"]["sets"][:1]
    tree["sweep"] = {}
    config = load_config(write_config(tmp_path / "c.yaml", tree))
    run_clients(config, tmp_path / "run")
    report = finish(tmp_path / "run", config)
    assert any("no retain client" in warning for warning in report.warnings)
    assert report.merges["firm"].epsilon is None
    assert report.merges["firm"].largest_damage == {}
    assert report.sweep == ()
    assert report.comparisons == ()


def test_a_folder_in_use_is_left_alone(finished: Run) -> None:
    run_dir, config, _ = finished
    with pytest.raises(InputError, match="not empty"):
        prepare(config, run_dir)


def test_a_faulty_question_file_stops_before_the_clients_start(world: Path, tmp_path: Path) -> None:
    tree = pocket_tree(world)
    tree["evaluation"]["sets"][0]["data"] = str(tmp_path / "gone.jsonl")
    config = load_config(write_config(tmp_path / "c.yaml", tree))
    with pytest.raises(DataError, match=r"gone\.jsonl"):
        prepare(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_client_file_that_the_world_does_not_make_is_named(world: Path, tmp_path: Path) -> None:
    """Before the world is there, its files cannot be checked; after, they can."""
    tree = pocket_tree(world)
    tree["world"] = {"directory": str(world)} | POCKET_SETTINGS
    tree["clients"][0]["data"] = str(world / "data/forget/brewing-9.jsonl")
    config = load_config(write_config(tmp_path / "c.yaml", tree), local=True)
    with pytest.raises(ConfigError, match=r"clients\.0\.data: .*brewing-9"):
        prepare(config, tmp_path / "run", local=True)
    assert not (tmp_path / "run").exists()
    prepare(config, tmp_path / "run")


def test_trials_come_merge_by_merge_and_none_twice() -> None:
    merges = {"a": MergeSettings(gamma=2.0), "b": MergeSettings(gamma=3.0)}
    trials = plan_trials(merges, {"a": (1.0, 2.0)})
    assert [(t.merge, t.gamma, t.configured) for t in trials] == [
        ("a", 1.0, False),
        ("a", 2.0, True),
        ("b", 3.0, True),
    ]
