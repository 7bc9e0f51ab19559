"""MUSE: what is remembered of news and books, word by word and as knowledge, and who can tell."""

from collections.abc import Iterator
from typing import Literal

from fedunlearn.evaluation.attacks import AttackSettings
from fedunlearn.evaluation.continuing import Continuing
from fedunlearn.evaluation.passages import Passages
from fedunlearn.evaluation.recalling import Recalling
from fedunlearn.evaluation.results import Result
from fedunlearn.evaluation.samples import SampleSet
from fedunlearn.evaluation.suites.interface import SUITES, Suite, Table, membership, privleak
from fedunlearn.evaluation.suites.rows import passage_samples, question_samples
from fedunlearn.metrics import RougeLF1
from fedunlearn.settings import settings

_FOLDS = ("forget_1", "forget_2", "forget_3", "forget_4")
_Part = Literal["verbmem", "knowmem", "privleak", "scal", "sust"]


@SUITES.register("muse")
@settings
class MuseSuite(Suite):
    """MUSE's criteria 1 to 4, and its forget folds of scalability and sustainability.

    MUSE's fifth and sixth criterion compare several models by ``retain_knowmem``: evaluate the
    model of each fold. ``scal`` and ``sust`` here measure how well one model still knows the
    passages of each fold.

    Attributes:
        corpus: ``news`` or ``books``.
        parts: what is measured.
        path: local copy of the data; ``None``: the hub.
        revision: of the data on the hub.
        conventions: ``muse_bench``: no stemmer, Min-K on all tokens. ``open_unlearning``: stems,
            the last token of a passage left out, passages cut to 2048 tokens.
        retrained_auc: published Min-40% AUC of a retrained model, members being the forget data:
            1 minus what muse_bench's constants hold. ``None``: from the retrained results, or 0.5.
        sample: so many samples of each set, drawn by its seed 0; ``None``: all.
    """

    corpus: Literal["news", "books"]
    parts: tuple[_Part, ...] = ("verbmem", "knowmem", "privleak")
    path: str | None = None
    revision: str | None = None
    conventions: Literal["muse_bench", "open_unlearning"] = "muse_bench"
    retrained_auc: float | None = None
    sample: int | None = None

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("parts must name at least one part")

    @property
    def _open(self) -> bool:
        return self.conventions == "open_unlearning"

    @property
    def _rouge(self) -> RougeLF1:
        return RougeLF1(stemmed=self._open)

    @property
    def _attacks(self) -> AttackSettings:
        return AttackSettings(drops_last=self._open)

    def sample_sets(self) -> list[SampleSet]:
        """Read every part's splits."""
        return [one for part in self.parts for one in self._sets(part)]

    @property
    def forget_sets(self) -> tuple[str, ...]:
        """What is generated of the forget data."""
        both = {"verbmem": "verbmem", "knowmem": "forget_knowmem"}
        return tuple(both[part] for part in self.parts if part in both)

    def _sets(self, part: _Part) -> Iterator[SampleSet]:
        passages = Passages(
            attacks=self._attacks,
            max_length=2048 if self._open else None,
            zlib_of="targets" if self._open else "text",
        )
        match part:
            case "verbmem":
                samples = tuple(question_samples(self._spec("verbmem", "forget")))
                yield SampleSet("verbmem", Continuing(rouge=self._rouge), samples, "verbmem forget")
            case "knowmem":
                for kind in ("forget", "retain"):
                    yield self._knowmem(kind)
            case "privleak":
                for kind in ("forget", "retain", "holdout"):
                    samples = tuple(passage_samples(self._spec("privleak", kind)))
                    yield SampleSet(f"privleak_{kind}", passages, samples, f"privleak {kind}")
            case _:
                for fold in _FOLDS:
                    samples = tuple(passage_samples(self._spec(part, fold)))
                    yield SampleSet(f"{part}_{fold}", passages, samples, f"{part} {fold}")

    def _knowmem(self, kind: str) -> SampleSet:
        shown = question_samples({**self._spec("knowmem", f"{kind}_qa_icl"), "sample": None})
        task = Recalling(shots=tuple((one.prompt, one.target) for one in shown), rouge=self._rouge)
        samples = tuple(question_samples(self._spec("knowmem", f"{kind}_qa")))
        return SampleSet(f"{kind}_knowmem", task, samples, f"knowmem {kind}_qa")

    def _spec(self, subset: str, split: str) -> dict[str, object]:
        return {
            "source": f"muse_{self.corpus}",
            "subset": subset,
            "split": split,
            "path": self.path,
            "revision": self.revision,
            "sample": self.sample,
        }

    def results(self, table: Table) -> list[Result]:
        """Memorisation, PrivLeak and the attacks behind it, folds."""
        return [one for part in self.parts for one in self._results(part, table)]

    def _results(self, part: _Part, table: Table) -> Iterator[Result]:
        match part:
            case "verbmem":
                yield table.mean("verbmem", "rouge_l_f1", stemmed=self._open)
                yield table.mean("verbmem", "extraction_strength")
            case "knowmem":
                for name in ("forget_knowmem", "retain_knowmem"):
                    yield table.mean(name, "rouge_l_f1", stemmed=self._open)
            case "privleak":
                yield self._privleak(table)
                yield from membership(
                    table, "privleak_forget", "privleak_holdout", self._attacks.metrics
                )
            case _:
                for fold in _FOLDS:
                    yield table.mean(f"{part}_{fold}", "loss")

    def _privleak(self, table: Table) -> Result:
        return privleak(
            table,
            "privleak_forget",
            "privleak_holdout",
            attack="min_k",
            retrained_auc=self.retrained_auc,
        )
