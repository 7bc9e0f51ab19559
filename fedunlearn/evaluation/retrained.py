"""Per-sample results of a model that was trained without the forget data: one file.

Forget quality compares with it, and PrivLeak takes its AUC. It says which samples it is of, so
that results of other questions, or of other prompts, are refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from fedunlearn.errors import InputError
from fedunlearn.evaluation.bench import ModelIdentity
from fedunlearn.evaluation.samples import Record, Records, SampleSet
from fedunlearn.storage import read_typed, replace_json

FORMAT_VERSION = 1
_KEPT = ("id", "truth_ratio_geometric", "truth_ratio_arithmetic", "loss", "min_k")


@dataclass(frozen=True)
class RetrainedSet:
    """Records of one set.

    Attributes:
        sha256: of the samples and of how they were measured.
        records: ids and the scores that comparisons need.
    """

    sha256: str
    records: list[Record]


@dataclass(frozen=True)
class Retrained:
    """The content of the file.

    Attributes:
        format_version: of this layout.
        model: the retrained model.
        sets: name to records.
    """

    format_version: int
    model: ModelIdentity
    sets: dict[str, RetrainedSet]

    def records(self, chosen: SampleSet) -> Sequence[Record]:
        """Records of the same samples, measured in the same way.

        Raises:
            InputError: the file has no such set, or of other samples or settings.
        """
        stored = self.sets.get(chosen.name)
        if stored is None:
            known = ", ".join(sorted(self.sets)) or "none"
            raise InputError(f"the retrained results have no set {chosen.name!r}; sets: {known}")
        if stored.sha256 != chosen.sha256:
            raise InputError(
                f"the retrained results of {chosen.name!r} are of other samples, prompts or "
                "settings; make them again with the same suite"
            )
        return stored.records


_ADAPTER = TypeAdapter(Retrained)


def write_retrained(
    path: Path, model: ModelIdentity, sets: Sequence[SampleSet], records: Records
) -> None:
    """Keep what comparisons need of some records."""
    kept = {
        one.name: RetrainedSet(
            one.sha256,
            [{key: row[key] for key in _KEPT if key in row} for row in records[one.name]],
        )
        for one in sets
    }
    replace_json(path, _ADAPTER.dump_python(Retrained(FORMAT_VERSION, model, kept), mode="json"))


def read_retrained(path: Path) -> Retrained:
    """Read the file.

    Raises:
        InputError: it is missing, or not one of this version.
    """
    found = read_typed(path, _ADAPTER)
    if found.format_version != FORMAT_VERSION:
        raise InputError(
            f"{path} has format version {found.format_version}, expected {FORMAT_VERSION}"
        )
    return found
