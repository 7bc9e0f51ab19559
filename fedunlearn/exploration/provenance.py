"""What a sweep was made from, as digests: another input must not go on in the same folder."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fedunlearn.data.reading import DataSpec, read_entries
from fedunlearn.evaluation import EvaluationSettings

FORMAT_VERSION = 2
_SHOWN = 12


@dataclass(frozen=True)
class QuestionsOrigin:
    """What was asked.

    Attributes:
        max_new_tokens: longest generated answer.
        max_length: longest prompt and answer together.
        sets: question set to its kind, its domain, and the SHA-256 of its files, or
            of the records of its sources.
    """

    max_new_tokens: int
    max_length: int
    sets: dict[str, dict[str, str]]

    @classmethod
    def of(cls, chosen: EvaluationSettings) -> "QuestionsOrigin":
        """Read and digest the question files and sources, which must be there."""
        return cls(
            chosen.max_new_tokens,
            chosen.max_length,
            {
                one.name: {
                    "kind": one.kind,
                    "domain": one.domain,
                    **{
                        what: _digest_data(spec)
                        for what, spec in (("data", one.data), ("choices", one.choices))
                        if spec is not None
                    },
                }
                for one in chosen.sets
            },
        )


@dataclass(frozen=True)
class Provenance:
    """The content of ``sweep.json``.

    Attributes:
        format_version: of the sweep's files.
        base_model: name of the base model, for people.
        base_model_sha256: hash of its weights.
        summaries: client's id to the SHA-256 of its summary's files.
        questions: what was asked; ``None`` until the first evaluation.
    """

    format_version: int
    base_model: str
    base_model_sha256: str
    summaries: dict[str, str]
    questions: QuestionsOrigin | None = None

    def asking(self, questions: QuestionsOrigin) -> "Provenance":
        """The same with questions."""
        return replace(self, questions=questions)

    def differences(self, other: "Provenance") -> list[str]:
        """Say what in ``other`` is not as it was here; questions count once both have some."""
        found = list(_differences("base model", self._base(), other._base()))
        found += _differences("summary of client", self.summaries, other.summaries)
        if self.questions is not None and other.questions is not None:
            found += _questions(self.questions, other.questions)
        return found

    def _base(self) -> dict[str, str]:
        return {"weights": self.base_model_sha256}


def trace(folder: Path, *, base_model: str, base_model_sha256: str) -> Provenance:
    """Digest a folder of summaries.

    Args:
        folder: of summaries, one folder each, already found to be valid.
        base_model: name of the base model they were made for.
        base_model_sha256: its hash.
    """
    clients = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    return Provenance(
        format_version=FORMAT_VERSION,
        base_model=base_model,
        base_model_sha256=base_model_sha256,
        summaries={client.name: _digest_folder(client) for client in clients},
    )


def _digest_folder(folder: Path) -> str:
    """Digest names and content of all files that are not hidden."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            digest.update(f"{path.name}:{_digest(path)}\n".encode())
    return digest.hexdigest()


def _digest_data(spec: DataSpec) -> str:
    """Digest a file's bytes, or the records of a source."""
    if isinstance(spec, str):
        return _digest(Path(spec).expanduser())
    records = "\n".join(repr(entry.item) for entry in read_entries(spec))
    return hashlib.sha256(records.encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _questions(before: QuestionsOrigin, after: QuestionsOrigin) -> Iterator[str]:
    for name in ("max_new_tokens", "max_length"):
        was, now = getattr(before, name), getattr(after, name)
        if was != now:
            yield f"evaluation.{name} was {was}, is {now}"
    yield from _differences("question set", _joined(before), _joined(after))


def _joined(origin: QuestionsOrigin) -> dict[str, str]:
    """One digest a set, over its kind, its domain and its files."""
    return {
        name: hashlib.sha256(repr(sorted(facts.items())).encode()).hexdigest()
        for name, facts in asdict(origin)["sets"].items()
    }


def _differences(what: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if now is None:
            yield f"{what} {name!r} is gone"
        elif was is None:
            yield f"{what} {name!r} is new"
        elif was != now:
            yield f"{what} {name!r} has changed ({was[:_SHOWN]} was, {now[:_SHOWN]} is)"
