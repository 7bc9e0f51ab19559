"""Records of a sample set on disk, a line a sample; what is there is not measured again.

Beside ``<set>.jsonl`` lies ``<set>.key.json``, which says of which model, task and samples they
are. Records of another key are deleted before anything is measured: no stale number survives.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fedunlearn.errors import InputError
from fedunlearn.evaluation.bench import ModelIdentity
from fedunlearn.evaluation.samples import Record, SampleSet
from fedunlearn.storage import read_json, replace_json


@dataclass(frozen=True)
class SampleKey:
    """What records depend on.

    Attributes:
        model_sha256: of the weights.
        dtype: of the weights.
        tokenizer_sha256: of the tokenizer.
        template_sha256: of the chat template.
        set_sha256: of the samples and of how they are measured.
        reference_sha256: of the reference model's weights, where an attack uses one.
    """

    model_sha256: str
    dtype: str
    tokenizer_sha256: str
    template_sha256: str | None
    set_sha256: str
    reference_sha256: str | None = None


def key_of(model: ModelIdentity, chosen: SampleSet, reference_sha256: str | None) -> SampleKey:
    """The key of a set's records under a model."""
    return SampleKey(
        model.sha256,
        model.dtype,
        model.tokenizer_sha256,
        model.template_sha256,
        chosen.sha256,
        reference_sha256 if chosen.task.uses_reference else None,
    )


class SampleLog:
    """The records of one set.

    Args:
        folder: of all sets' records.
        chosen: the set.
        key: what its records depend on now; stored ones of another key are deleted.
    """

    def __init__(self, folder: Path, chosen: SampleSet, key: SampleKey) -> None:
        self.path = folder / f"{chosen.name}.jsonl"
        self._key_path = folder / f"{chosen.name}.key.json"
        self._wanted = {one.id for one in chosen.samples}
        self._order = [one.id for one in chosen.samples]
        if not self._is_of(key):
            self.path.unlink(missing_ok=True)
            folder.mkdir(parents=True, exist_ok=True)
            replace_json(self._key_path, asdict(key))
        self._known = self._read()

    def _is_of(self, key: SampleKey) -> bool:
        try:
            return read_json(self._key_path) == asdict(key)
        except InputError:
            return False

    def _read(self) -> dict[str, Record]:
        """Whole lines that are there; a line a stop cut short is dropped from the file as well."""
        if not self.path.is_file():
            return {}
        known: dict[str, Record] = {}
        sound = 0
        with self.path.open("rb") as file:
            for line in file:
                try:
                    record = json.loads(line) if line.endswith(b"\n") else None
                except ValueError:
                    record = None
                if not isinstance(record, dict) or record.get("id") not in self._wanted:
                    break
                known[record["id"]] = record
                sound += len(line)
        with self.path.open("rb+") as file:
            file.truncate(sound)
        return known

    @property
    def missing(self) -> list[str]:
        """Ids that are not measured yet, in the set's order."""
        return [one for one in self._order if one not in self._known]

    def add(self, records: Sequence[Record]) -> None:
        """Append records; numbers JSON lacks become ``null``."""
        with self.path.open("a", encoding="utf-8") as file:
            for record in records:
                clean = _finite(record)
                file.write(json.dumps(clean, ensure_ascii=False, allow_nan=False) + "\n")
                self._known[clean["id"]] = clean

    def records(self) -> list[Record]:
        """All records, in the set's order.

        Raises:
            KeyError: some are missing.
        """
        return [self._known[one] for one in self._order]


def _finite(value: Record) -> Record:
    return json.loads(json.dumps(value), parse_constant=lambda _: None)  # type: ignore[no-any-return]
