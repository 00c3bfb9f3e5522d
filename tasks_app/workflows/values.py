"""Values that travel between steps, and the errors an author raises."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict
from typing_extensions import override

T = TypeVar("T")


class ArtifactRef(BaseModel):
    """A stored output by reference; the bytes stay in the artifact store."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    artifact_id: UUID
    name: str
    sha256: str
    size_bytes: int
    media_type: str

    @property
    def uri(self) -> str:
        """Return the address under which the artifact is known in this installation."""
        return f"artifact:{self.artifact_id}"


class ItemList(BaseModel):
    """A list too long to carry around: JSON Lines in the artifact store, read by ranges.

    `offsets` holds the byte offset of every `stride`-th line, so that a range is read without
    reading what lies before it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str
    count: int
    stride: int
    offsets: tuple[int, ...]


class ApprovalOutcome(BaseModel):
    """How an approval ended."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    approved: bool
    outcome: str
    approval_id: UUID
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ItemFault:
    """Why an item of a map has no result."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class MapItem(Generic[T]):
    """One item of a finished map: its result or its fault."""

    index: int
    item: Any
    result: T | None
    error: ItemFault | None


class MapResults(ABC, Generic[T]):
    """The results of a map, streamed in order of items; iterate as often as wanted."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Return the number of items."""

    @property
    @abstractmethod
    def failed(self) -> int:
        """Return the number of items without a result."""

    @abstractmethod
    def __iter__(self) -> Iterator[MapItem[T]]:
        """Yield every item once, in order, without holding more than one range in memory."""


class Finished(Mapping[str, Any]):
    """Results of a plan's finished steps by key, in plan order; each is read when it is asked for."""

    def __init__(self, keys: Iterable[str], load: Callable[[str], Any]) -> None:
        self._keys = dict.fromkeys(keys)
        self._load = load

    @override
    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return self._load(key)

    @override
    def __contains__(self, key: object) -> bool:
        return key in self._keys

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    @override
    def __len__(self) -> int:
        return len(self._keys)


class ItemError(Exception):
    """This item of a map cannot be processed and trying again would not help."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """What `find` returns when the act has happened: the result that the effect would have had."""

    value: T


class EffectNotDoneError(Exception):
    """The outside world certainly did not do it, and trying again would not help."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ModelFailedError(Exception):
    """A model gave up; what it said instead of an answer is in the conversation."""

    code = "model_failed"


class NotDeliverableError(Exception):
    """What a step wanted to hand over is not there, or is empty."""

    code = "not_deliverable"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.path = path


class StepFailedError(Exception):
    """A step of a function failed for good; uncaught it fails the task.

    Attributes:
        step: the step's key.
        facts: what is stored of the failure: code, message, and more by its kind.
    """

    def __init__(self, step: str, facts: dict[str, Any]) -> None:
        super().__init__(str(facts.get("message", "")))
        self.step = step
        self.facts = facts
        self.code = str(facts.get("code", ""))


class NotApprovedError(StepFailedError):
    """People did not let the act through, or nobody answered in time; it was not done."""


class GoalError(Exception):
    """The goal is well-formed but cannot be worked on; raised by `Workflow.check`."""

    def __init__(self, pointer: str, code: str, detail: str) -> None:
        super().__init__(detail)
        self.pointer = pointer
        self.code = code
        self.detail = detail
