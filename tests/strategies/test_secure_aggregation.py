"""Why `federation.secure_aggregation` is refused: what Flower's SecAgg+ does to our messages.

These pin facts about Flower, as `docs/DEPLOYMENT.md` states them; one that fails is news, and may
mean that secure aggregation can be had.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common.secure_aggregation.quantization import dequantize, quantize
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.server.workflow import SecAggPlusWorkflow

from fedunlearn.rounds import Addressee
from strategies import records
from strategies.exchange import Question
from tests.strategies.federation import TableGrid, flower_task

CLIP, LEVELS = 8.0, 2**22  # Flower's defaults
SETUP: dict[str, Any] = {
    Key.STAGE: Stage.SETUP,
    Key.SAMPLE_NUMBER: 3,
    Key.SHARE_NUMBER: 3,
    Key.THRESHOLD: 2,
    Key.CLIPPING_RANGE: CLIP,
    Key.TARGET_RANGE: LEVELS,
    Key.MOD_RANGE: 2**32,
    Key.MAX_WEIGHT: 1000.0,
}


@pytest.fixture(autouse=True)
def _task() -> Iterator[None]:
    with flower_task():
        yield


def context() -> Context:
    return Context(run_id=1, node_id=7, node_config={}, state=RecordDict(), run_config={})


def summary(message: Message, _: Context) -> Message:
    arrays = {"adapter/a": np.ones((2, 3), np.float32), "fisher/w": np.ones((2, 2), np.uint16)}
    return Message(records.summary_content(arrays, "{}"), reply_to=message)


def asked(kind: str, **config: Any) -> Message:
    content = RecordDict({RECORD_KEY_CONFIGS: ConfigRecord(config)})
    (sent,) = [Question(kind, lambda *_: content).to(Addressee(7, "a"), 9.0)]
    return sent


def through_the_stages(ctxt: Context) -> None:
    """Setup and shares of one client among three, as far as the third stage."""
    keys = secaggplus_mod(asked("train", **SETUP), ctxt, summary)
    pair = keys.content.config_records[RECORD_KEY_CONFIGS]
    mine = [pair[Key.PUBLIC_KEY_1], pair[Key.PUBLIC_KEY_2]]
    peers = {}
    for number in (8, 9):
        other = Context(run_id=1, node_id=number, node_config={}, state=RecordDict(), run_config={})
        theirs = secaggplus_mod(asked("train", **SETUP), other, summary)
        there = theirs.content.config_records[RECORD_KEY_CONFIGS]
        peers[str(number)] = [there[Key.PUBLIC_KEY_1], there[Key.PUBLIC_KEY_2]]
    shares = {Key.STAGE: Stage.SHARE_KEYS, "7": mine, **peers}
    secaggplus_mod(asked("train", **shares), ctxt, summary)


def test_the_mod_cannot_read_a_summary() -> None:
    ctxt = context()
    through_the_stages(ctxt)
    third = {
        Key.STAGE: Stage.COLLECT_MASKED_VECTORS,
        Key.CIPHERTEXT_LIST: [],
        Key.SOURCE_LIST: [],
    }
    with pytest.raises(KeyError, match="fitres"):
        secaggplus_mod(asked("train", **third), ctxt, summary)


def test_the_mod_lets_a_copys_update_pass_in_the_clear() -> None:
    reply = secaggplus_mod(asked("train.copy", **SETUP), context(), summary)
    arrays, _ = records.read_summary(reply.content)
    assert arrays["adapter/a"].tolist() == np.ones((2, 3)).tolist()


def test_the_workflow_wants_the_legacy_api() -> None:
    workflow = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2)
    with pytest.raises(TypeError, match="LegacyContext"):
        workflow(TableGrid({}), context())


def test_the_quantisation_makes_small_fisher_entries_zero() -> None:
    """One range for all arrays: float32 entries below 4e-7 vanish beside a clipping range of 8."""
    fisher = np.geomspace(1e-12, 4e-7, 100).astype(np.float32)
    (back,) = dequantize(quantize([fisher], CLIP, LEVELS), CLIP, LEVELS)
    assert np.count_nonzero(back) == 0
