"""The strategy against real clients in this process: what is stored, what is refused and named."""

import hashlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedunlearn.aggregation import MergeSettings, RelativeEpsilon, merge_summaries
from fedunlearn.client_app import make_client_app
from fedunlearn.config import RunConfig
from fedunlearn.errors import InputError, RunError
from fedunlearn.events import EventLog, read_events
from fedunlearn.models.adapted import adapted_shapes
from fedunlearn.rounds import RoundRules
from fedunlearn.summary import open_summaries
from strategies.exchange import Patience
from strategies.firm import FirmStrategy
from tests.strategies.federation import (
    Clock,
    Node,
    TableGrid,
    app_nodes,
    dead_actor,
    federation,
    flower_task,
    job,
)

MERGE = MergeSettings(method="firm", epsilon=RelativeEpsilon(relative=0.3))


@pytest.fixture(autouse=True)
def _task() -> Iterator[None]:
    with flower_task():
        yield


def nodes_of(config: RunConfig) -> dict[int, Node]:
    app = make_client_app(lambda _: config, run_job=job)
    return app_nodes(app, range(len(config.clients)))


def strategy_of(
    config: RunConfig,
    run_dir: Path,
    *,
    merge: MergeSettings | None = None,
    listed: bool = True,
    num_clients: int | None = None,
    salt: str = "",
) -> FirmStrategy:
    clock = Clock()
    return FirmStrategy(
        config.instructions(),
        run_dir=run_dir,
        rules=RoundRules(
            nodes_s=2.0,
            handshake_s=2.0,
            deadline_s=config.federation.deadline_s,
            allow_partial=config.federation.allow_partial,
            min_forget_per_domain=config.federation.min_forget_per_domain,
            require_all_retain=config.federation.require_all_retain,
            outliers=config.federation.outliers,
        ),
        events=EventLog(run_dir / "events.jsonl", clock=lambda: 0.0),
        patience=Patience(clock=clock, sleep=clock.sleep),
        expected=config.clients if listed and num_clients is None else (),
        num_clients=num_clients,
        merge=merge,
        weights=adapted_shapes(config.model, config.lora),
        salt=salt,
    )


def delta_hash(run_dir: Path) -> str:
    delta = merge_summaries(open_summaries(run_dir / "summaries"), MERGE).delta
    digest = hashlib.sha256()
    for name, tensor in sorted(delta.items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


HONEST = ["f-1", "f-2", "r-1"]


def stored(run_dir: Path) -> list[str]:
    return sorted(path.name for path in (run_dir / "summaries").iterdir())


def test_a_round_stores_every_summary_and_logs_every_reply(tmp_path: Path) -> None:
    config = federation(tmp_path)
    strategy = strategy_of(config, tmp_path / "run")
    outcome = strategy.run(TableGrid(nodes_of(config)))
    assert outcome.received == ("f-1", "f-2", "r-1")
    assert outcome.absentees == ()
    assert strategy.warnings == ()
    assert stored(tmp_path / "run") == ["f-1", "f-2", "r-1"]
    assert not (tmp_path / "run" / ".incoming").exists()
    events = read_events(strategy.events.path)
    assert [event["event"] for event in events].count("train_reply") == 3
    assert events[-1]["event"] == "round_done"


def test_only_clients_that_are_pooled_send_their_whole_fisher(tmp_path: Path) -> None:
    config = federation(tmp_path)
    for domains, forget in ((("x", "x"), 1.0), (("x", "y"), 0.1)):
        moved = [replace(config.clients[n], domain=domains[n]) for n in (0, 1)]
        chosen = replace(config, clients=(*moved, config.clients[2]))
        run_dir = tmp_path / "-".join(domains)
        strategy_of(chosen, run_dir).run(TableGrid(nodes_of(chosen)))
        kept = {s.meta.client_id: s.meta.kept for s in open_summaries(run_dir / "summaries")}
        assert kept == {"f-1": forget, "f-2": forget, "r-1": 0.1}


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, str]:
    directory = tmp_path_factory.mktemp("shared")
    config = federation(directory)
    with flower_task():
        strategy_of(config, directory / "run").run(TableGrid(nodes_of(config)))
    return config, delta_hash(directory / "run")


@given(seed=st.integers(0, 2**32))
@settings(
    max_examples=4,
    deadline=None,  # a round takes as long as it takes
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # each example has its own folder
)
def test_the_order_of_replies_does_not_matter(
    seed: int, shared_run: tuple[RunConfig, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    config, expected = shared_run
    run_dir = tmp_path_factory.mktemp("run")

    def shuffled(replies: list[Message]) -> Iterable[Message]:
        return random.Random(seed).sample(replies, len(replies))

    strategy_of(config, run_dir).run(TableGrid(nodes_of(config), order=shuffled))
    assert delta_hash(run_dir) == expected


FAULTS = {
    "raises-1": "ValueError: boom",
    "nan-1": "model.layers.0.mlp.down_proj.weight",
    "shape-1": "model.layers.0.mlp.down_proj.weight",
    "key-1": "model.layers.0.mlp.down_proj.weight",
    "turncoat-1": "role 'retain'",
    "impostor-1": "client_id 'f-1'",
    "stranger-1": "base_model_sha256 '0000",
    "vandal-1": "changed the shared base model",
}


@pytest.mark.parametrize(("client_id", "reason"), FAULTS.items())
def test_a_bad_client_is_named_with_role_and_domain_and_nothing_of_it_is_stored(
    client_id: str, reason: str, tmp_path: Path
) -> None:
    config = federation(tmp_path, client_id)
    strategy = strategy_of(config, tmp_path / "run")
    with pytest.raises(RunError) as caught:
        strategy.run(TableGrid(nodes_of(config)))
    assert "1 of 4 clients did not deliver; no model is written" in str(caught.value)
    assert f"forget client '{client_id}' (brewing): " in str(caught.value)
    assert reason in str(caught.value)
    assert sorted(one.name for one in (tmp_path / "run" / ".incoming").iterdir()) == sorted(HONEST)
    assert not (tmp_path / "run" / "summaries").exists()
    (failure,) = [e for e in read_events(strategy.events.path) if e["event"] == "client_failed"]
    assert (failure["client_id"], failure["role"], failure["domain"]) == (
        client_id,
        "forget",
        "brewing",
    )


def test_a_partial_round_goes_on_where_allowed_and_says_what_is_not_unlearned(
    tmp_path: Path,
) -> None:
    config = federation(tmp_path, "nan-1", allow_partial=True)
    strategy = strategy_of(config, tmp_path / "run")
    outcome = strategy.run(TableGrid(nodes_of(config)))
    assert outcome.received == ("f-1", "f-2", "r-1")
    assert strategy.warnings[0].endswith("the data of 'nan-1' in 'brewing' is not unlearned")


def mute_when(kind: str, node: Node) -> Node:
    return lambda message: None if message.metadata.message_type == kind else node(message)


@pytest.mark.parametrize("kind", ["query", "train"])
def test_a_client_that_stays_silent_is_named_at_the_deadline(kind: str, tmp_path: Path) -> None:
    config = federation(tmp_path)
    nodes = nodes_of(config)
    nodes[102] = mute_when(kind, nodes[102])
    with pytest.raises(
        RunError, match=r"retain client 'r-1' \(geography\): it(s summary)? did not"
    ):
        strategy_of(config, tmp_path / "run").run(TableGrid(nodes))


def test_a_client_whose_process_dies_in_the_handshake_is_named_by_elimination(
    tmp_path: Path,
) -> None:
    config = federation(tmp_path)
    nodes = {**nodes_of(config), 101: dead_actor("aa")}
    with pytest.raises(RunError, match=r"forget client 'f-2' \(signals\): its process died"):
        strategy_of(config, tmp_path / "run").run(TableGrid(nodes))


@pytest.mark.parametrize(
    ("node", "client", "consequence"),
    [
        (101, r"forget client 'f-2' \(signals\)", "'f-2' in 'signals' is not unlearned"),
        (102, r"retain client 'r-1' \(geography\)", "'r-1' in 'geography' is not protected"),
    ],
)
def test_a_client_of_either_role_that_is_killed_in_training_is_named(
    node: int, client: str, consequence: str, tmp_path: Path
) -> None:
    config = federation(tmp_path)

    def run(run_dir: Path, *, allow_partial: bool) -> tuple[str, ...]:
        living = nodes_of(config)[node]
        dying = dead_actor("aa")

        def killed(message: Message) -> Message | None:
            return (dying if message.metadata.message_type == "train" else living)(message)

        strategy = strategy_of(config, run_dir)
        strategy.rules = replace(strategy.rules, allow_partial=allow_partial)
        strategy.run(TableGrid({**nodes_of(config), node: killed}))
        return strategy.warnings

    with pytest.raises(RunError, match=rf"no model is written\n  {client}: its process died"):
        run(tmp_path / "strict", allow_partial=False)
    warnings = run(tmp_path / "partial", allow_partial=True)
    assert warnings[0].endswith(f"the data of {consequence}")
    assert any("no retain client takes part" in text for text in warnings) == (node == 102)


def test_a_client_without_data_fails_in_the_handshake_before_anyone_trains(
    tmp_path: Path,
) -> None:
    config = federation(tmp_path)
    nodes = nodes_of(config)
    Path(config.clients[0].data).unlink()
    grid = TableGrid(nodes)
    with pytest.raises(RunError, match=r"forget client 'f-1' \(brewing\): .*data.jsonl"):
        strategy_of(config, tmp_path / "run").run(grid)
    assert {message.metadata.message_type for message in grid.sent} == {"query"}


def test_more_nodes_than_clients_are_refused_with_the_remedy(tmp_path: Path) -> None:
    config = federation(tmp_path)
    nodes = app_nodes(make_client_app(lambda _: config, run_job=job), range(4))
    with pytest.raises(RunError, match="has a node 3 but the run has 3 clients"):
        strategy_of(config, tmp_path / "run").run(TableGrid(nodes))


def test_summaries_of_an_earlier_run_are_never_mixed_in(tmp_path: Path) -> None:
    config = federation(tmp_path)
    (tmp_path / "run" / "summaries" / "old").mkdir(parents=True)
    with pytest.raises(InputError, match="already holds summaries"):
        strategy_of(config, tmp_path / "run").run(TableGrid(nodes_of(config)))


def test_without_a_retain_client_the_round_works_and_says_so(tmp_path: Path) -> None:
    config = federation(tmp_path)
    nodes = app_nodes(make_client_app(lambda _: config, run_job=job), range(2))
    strategy = strategy_of(config, tmp_path / "run", num_clients=2)
    strategy.run(TableGrid(nodes))
    assert strategy.warnings == (
        "no retain client takes part: nothing constrains the forget update",
        "norms of what clients sent were not compared: 2 took part, a median needs 3",
    )


def test_without_a_list_a_client_that_is_lacking_is_counted(tmp_path: Path) -> None:
    config = federation(tmp_path, allow_partial=True)
    nodes = app_nodes(make_client_app(lambda _: config, run_job=job), range(3))
    strategy = strategy_of(config, tmp_path / "run", num_clients=4)
    strategy.run(TableGrid(nodes))
    assert stored(tmp_path / "run") == ["f-1", "f-2", "r-1"]
    (warning,) = strategy.warnings
    assert "'client 4 of 4'" in warning


def test_without_a_list_a_node_that_is_there_and_silent_is_missed(tmp_path: Path) -> None:
    config = federation(tmp_path)
    nodes = app_nodes(make_client_app(lambda _: config, run_job=job), range(3))
    nodes[101] = lambda message: None
    strategy = strategy_of(config, tmp_path / "run", listed=False)
    grid = TableGrid(nodes)
    with pytest.raises(RunError, match=r"'client 3 of 3' .* is its SuperNode running"):
        strategy.run(grid)
    assert {message.metadata.message_type for message in grid.sent} == {"query"}


def test_without_a_list_more_clients_than_expected_are_refused(tmp_path: Path) -> None:
    config = federation(tmp_path)
    nodes = app_nodes(make_client_app(lambda _: config, run_job=job), range(3))
    strategy = strategy_of(config, tmp_path / "run", num_clients=2)
    with pytest.raises(RunError, match=r"3 clients .*f-1, f-2, r-1.* the run expects 2"):
        strategy.run(TableGrid(nodes))


def test_flowers_own_start_gives_the_same_update(
    tmp_path: Path, shared_run: tuple[RunConfig, str]
) -> None:
    config, _ = shared_run
    strategy = strategy_of(config, tmp_path / "run", merge=MERGE)
    result = strategy.start(
        grid=TableGrid(nodes_of(config)),
        initial_arrays=ArrayRecord(),
        num_rounds=1,
        timeout=5.0,
        train_config=ConfigRecord(),
    )
    direct = merge_summaries(open_summaries(tmp_path / "run" / "summaries"), MERGE).delta
    assert sorted(result.arrays) == sorted(direct)
    for name, tensor in direct.items():
        np.testing.assert_array_equal(result.arrays[name].numpy(), tensor.numpy())
    assert result.train_metrics_clientapp[1]["received"] == 3
