"""The values that travel between the steps of a review: documents, findings, reviews, the report.

All of them are JSON; integers stay below 2**53 so that every reader of the ledger agrees on them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_EVIDENCE_PER_RULE = 5
MAX_QUOTE_CHARACTERS = 600


class Value(BaseModel):
    """Base of all values here: frozen, and an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Level(StrEnum):
    """Risk level of one document, lowest first."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class Document(Value):
    """One file to review; equal values mean unchanged content.

    Attributes:
        folder: Absolute path of the reviewed folder.
        path: Path inside the folder, with forward slashes.
        size_bytes: Size when the folder was listed.
        modified_at: UTC time of the last change, to the nanosecond.
        problem: Code of discovery.UNREAD when the walk already saw that it cannot be read; left
            out of the JSON otherwise, so that a readable file is the same item as ever.
    """

    folder: str
    path: str
    size_bytes: int
    modified_at: str
    problem: str = Field(default="", exclude_if=lambda problem: not problem)


class Fact(Value):
    """A number or name read out of a sentence, e.g. kind ``notice``, value ``30 days``."""

    kind: str
    value: str


class Finding(Value):
    """One sentence that one rule recognised.

    Attributes:
        rule: Rule id.
        quote: The sentence with white space collapsed, at most MAX_QUOTE_CHARACTERS long.
        start: Offset of the sentence in the extracted text, in characters.
        end: Offset after the sentence.
        section: Heading the sentence stands under, or "".
        marks: Ranges of `quote` that made the rule fire.
        modifiers: Ids of the rule's modifiers that hold for the sentence.
        facts: Numbers and names read out of the sentence.
    """

    rule: str
    quote: str
    start: int
    end: int
    section: str = ""
    marks: list[tuple[int, int]] = Field(default_factory=list)
    modifiers: list[str] = Field(default_factory=list)
    facts: list[Fact] = Field(default_factory=list)


class LicenceHit(Value):
    """A public licence the document contains (`how` = text) or refers to (`how` = mention)."""

    id: str
    family: str
    how: Literal["text", "mention"]


class DocumentReview(Value):
    """What one document says, without any judgement that depends on the goal.

    Attributes:
        path: Path inside the folder.
        format: text, markdown, html, pdf or docx.
        language: Language most of the text is written in.
        kind: licence, agreement, notice or other.
        characters: Length of the extracted text.
        sentences: Number of sentences looked at.
        text_sha256: Digest of the text with white space collapsed; equal for copies.
        licences: Public licences found.
        findings: Evidence, at most MAX_EVIDENCE_PER_RULE different sentences for each rule, in
            document order.
        occurrences: How many sentences each rule recognised, evidence kept or not.
    """

    path: str
    format: str
    language: Literal["en", "zh", "other"]
    kind: Literal["licence", "agreement", "notice", "other"]
    characters: int
    sentences: int
    text_sha256: str
    licences: list[LicenceHit] = Field(default_factory=list)
    findings: list[Finding] = Field(default_factory=list)
    occurrences: dict[str, int] = Field(default_factory=dict)


class Publication(Value):
    """Where a report was published.

    Attributes:
        target: The folder made for it, or the endpoint's address.
        reference: What the other side calls it: the folder's name or the Location it answered.
        kind: folder or http.
        replayed: The publication was already there under the same key.
    """

    target: str
    reference: str
    kind: Literal["folder", "http"]
    replayed: bool
