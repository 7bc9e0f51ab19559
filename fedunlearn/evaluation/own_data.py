"""What a client may say of a model on its own private data: aggregates, rounded, or nothing.

No score of a single record and no text is in :class:`OwnEvaluation`, and none leaves the client.

Limitations:
    Aggregates are not differential privacy. Who knows all records but one can work out the score
    of that one, up to rounding; and the server chooses the update that is measured.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from fedunlearn.data.encoding import encode_prompt, encode_record
from fedunlearn.data.records import Question, Record
from fedunlearn.errors import InputError, SummaryError
from fedunlearn.evaluation.bench import Bench
from fedunlearn.evaluation.questions import EvaluationSettings
from fedunlearn.metrics import AnswerProbability, RougeLRecall
from fedunlearn.models.expert import expert_on
from fedunlearn.models.loading import LoadedModel
from fedunlearn.models.patching import applied
from fedunlearn.settings import settings
from fedunlearn.storage import read_typed, replace_json

MINIMUM = 10
"""Fewest records behind a number that leaves a client."""
DECIMALS = 3
"""Places that a number is rounded to before it leaves a client."""
FILE = "client_evaluation.json"


@settings
class OwnScore:
    """A mean over at least :data:`MINIMUM` records, rounded to :data:`DECIMALS` places.

    Attributes:
        mean: in [0, 1].
        n: records behind it.
        standard_error: of the mean.
    """

    mean: float
    n: int
    standard_error: float

    def __post_init__(self) -> None:
        if self.n < MINIMUM:
            raise ValueError(f"n must be >= {MINIMUM}, got {self.n}")
        for value in (self.mean, self.standard_error):
            if not 0 <= value <= 1 or round(value, DECIMALS) != value:
                raise ValueError(f"expected {DECIMALS} decimals in [0, 1], got {value}")


@settings
class OwnScores:
    """One model on a client's data.

    Attributes:
        answer_probability: over all records; of a passage, of its tokens.
        rouge_l_recall: over the questions; ``None`` where they are fewer than :data:`MINIMUM`.
    """

    answer_probability: OwnScore
    rouge_l_recall: OwnScore | None = None


@settings
class OwnEvaluation:
    """The whole answer of a client.

    Attributes:
        merge: that was measured.
        base: the base model, expert included.
        merged: the same with the merge.
    """

    merge: str
    base: OwnScores
    merged: OwnScores


@dataclass(frozen=True)
class ClientEvaluation:
    """A client's answer, or why there is none.

    Attributes:
        client_id: the client's id.
        role: ``forget`` or ``retain``.
        domain: what its data is about.
        bytes_sent: of the update it was sent, without headers.
        scores: its answer; ``None`` without one.
        reason: why there is none.
    """

    client_id: str
    role: str
    domain: str
    bytes_sent: int
    scores: OwnEvaluation | None = None
    reason: str | None = None


def measure_own(
    base: LoadedModel,
    delta: Mapping[str, Tensor],
    records: Sequence[Record],
    chosen: EvaluationSettings,
    *,
    merge: str,
) -> OwnEvaluation:
    """Measure the base model, and the model with an update, on private records.

    The weights of ``base`` are restored bit for bit.

    Args:
        base: the base model.
        delta: base parameter name to dense update, float32.
        records: the client's own.
        chosen: lengths and batch size.
        merge: name of the update.

    Raises:
        InputError: there are fewer than :data:`MINIMUM` records; or the update has a name or
            shape that the model does not have, or is not finite.
        DataError: a record does not fit into ``max_length``.
    """
    if len(records) < MINIMUM:
        raise InputError(
            f"the client has fewer than {MINIMUM} records and says nothing of so small a group"
        )
    for name, update in delta.items():
        if not bool(update.isfinite().all()):
            raise InputError(f"the update for {name!r} is not finite")
    before = _scores(base, records, chosen)
    with applied(base.model, delta):
        after = _scores(base, records, chosen)
    return OwnEvaluation(merge=merge, base=before, merged=after)


def _scores(base: LoadedModel, records: Sequence[Record], chosen: EvaluationSettings) -> OwnScores:
    bench = Bench(base, chosen.batch_size)
    asked = [one for one in records if isinstance(one, Question)]
    with expert_on(base.model, base.expert):
        seen = bench.observe(
            [encode_record(base.tokenizer, one, max_length=chosen.max_length) for one in records]
        )
        rouge = None
        if len(asked) >= MINIMUM:
            prompts = [encode_prompt(base.tokenizer, one.question) for one in asked]
            texts = bench.generate(prompts, max_new_tokens=chosen.max_new_tokens)
            recall = RougeLRecall()
            rouge = _score(
                [recall(text, one.answer) for text, one in zip(texts, asked, strict=True)]
            )
    return OwnScores(
        answer_probability=_score([*map(AnswerProbability(), seen)]), rouge_l_recall=rouge
    )


def _score(values: Sequence[float]) -> OwnScore:
    error = stdev(values) / math.sqrt(len(values))
    return OwnScore(
        mean=round(fmean(values), DECIMALS), n=len(values), standard_error=round(error, DECIMALS)
    )


_OWN = TypeAdapter(OwnEvaluation)
_ALL = TypeAdapter(tuple[ClientEvaluation, ...])


def encode_own(found: OwnEvaluation) -> str:
    """Write a client's answer as JSON."""
    return _OWN.dump_json(found).decode()


def decode_own(text: str, *, merge: str, most: int) -> OwnEvaluation:
    """Read a client's answer; anything that is not in :class:`OwnEvaluation` is refused.

    Args:
        text: the JSON.
        merge: that was sent.
        most: records that the client said it has.

    Raises:
        SummaryError: it has other keys or values than an answer may have, or is of another merge.
    """
    try:
        found = _OWN.validate_json(text)
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise SummaryError(f"its evaluation is refused: {where}: {first['msg']}") from None
    if found.merge != merge:
        raise SummaryError(f"its evaluation is of merge {found.merge!r}, {merge!r} was sent")
    scores = (found.base, found.merged)
    if any(one.answer_probability.n > most for one in scores):
        raise SummaryError(f"its evaluation counts more than its {most} records")
    return found


def write_own(found: Sequence[ClientEvaluation], run_dir: Path) -> None:
    """Keep all answers for the report."""
    content = {"clients": _ALL.dump_python(tuple(found), mode="json")}
    replace_json(run_dir / FILE, content)


@dataclass(frozen=True)
class _File:
    clients: tuple[ClientEvaluation, ...]


def read_own(run_dir: Path) -> tuple[ClientEvaluation, ...]:
    """Read the answers of a run; none where clients were not asked.

    Raises:
        InputError: the file is malformed.
    """
    if not (run_dir / FILE).is_file():
        return ()
    return read_typed(run_dir / FILE, TypeAdapter(_File)).clients
