"""The job `contracts.review`: reads a folder of legal documents and writes a report about them.

Only the declaration and the order of steps; what each step does is in the modules beside it.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from tasks_app import conf
from tasks_app.workflows import (
    ArtifactRef,
    CheckpointPolicy,
    Collect,
    GoalError,
    ItemError,
    ItemList,
    MapResults,
    Retry,
    StepContext,
    Workflow,
    step,
    workflow,
)

from .clauses import review_text
from .discovery import compile_exclusions, list_documents, resolve_folder
from .model import Document, DocumentReview
from .problems import DocumentError, FolderError
from .reading import read_document
from .rules import load_rules

_ShortText = Annotated[str, Field(min_length=1, max_length=300)]


class ReviewGoal(BaseModel):
    """What to review."""

    model_config = ConfigDict(extra="forbid")

    folder: str = Field(title="Folder", max_length=4096)
    focus: list[_ShortText] = Field(default_factory=list, title="Focus", max_length=50)
    exclude: list[_ShortText] = Field(default_factory=list, title="Leave out", max_length=200)
    language: Literal["en", "zh"] = Field(default="en", title="Language of the report")


class Manifest(BaseModel):
    """The documents of the folder as they were when the task listed them."""

    documents: ItemList


class ReviewReport(BaseModel):
    """What the task hands over."""

    documents: int
    unreadable: int
    findings: ArtifactRef


@workflow(
    name="contracts.review",
    version=1,
    title="Review contracts and licences",
    description="Reads a folder of legal documents and reports clauses, risks and what is missing.",
)
class ReviewContracts(Workflow[ReviewGoal, ReviewReport]):
    """List, review one by one, write the report."""

    checkpoint = CheckpointPolicy(every_steps=10, max_seconds=60)

    @override
    def check(self, goal: ReviewGoal) -> None:
        try:
            resolve_folder(goal.folder, conf.runtime().input_roots)
            compile_exclusions(goal.exclude)
        except FolderError as error:
            pointer = "/exclude" if error.code == "bad_pattern" else "/folder"
            raise GoalError(pointer, error.code, error.message) from error
        for number, name in enumerate(goal.focus):
            if not load_rules().is_focus(name):
                raise GoalError(f"/focus/{number}", "unknown_focus", f"There is no focus {name!r}.")

    @override
    def plan(self, goal: ReviewGoal, p: Any) -> Any:
        manifest = p.step(self.load_manifest, goal.folder, goal.exclude)
        reviews = p.map(
            self.review_document, manifest.field("documents"), chunk=20, on_error=Collect()
        )
        return p.step(self.write_report, reviews, goal.focus, goal.language)

    @step(title="Reading", retry=Retry(max=3), timeout_seconds=300, pure=True)
    def load_manifest(self, ctx: StepContext, folder: str, exclude: list[str]) -> Manifest:
        """List the documents."""
        real = resolve_folder(folder, conf.runtime().input_roots)
        return Manifest(documents=ctx.items("documents", list_documents(real, exclude)))

    @step(title="Reviewing", retry=Retry(max=3), timeout_seconds=300, pure=True)
    def review_document(self, ctx: StepContext, document: Document) -> DocumentReview:
        """Read one document and find its clauses."""
        try:
            text = read_document(Path(document.folder), document.path)
        except DocumentError as error:
            raise ItemError(error.code, error.message) from error
        return review_text(document.path, text, load_rules())

    @step(title="Writing report", timeout_seconds=600, pure=True)
    def write_report(
        self, ctx: StepContext, reviews: MapResults[DocumentReview], focus: list[str], language: str
    ) -> ReviewReport:
        """Write the findings, one document a line."""
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "findings.jsonl"
            with path.open("w", encoding="utf-8") as out:
                out.writelines(_lines(reviews))
            findings = ctx.artifact("findings.jsonl", path, "application/x-ndjson")
        return ReviewReport(documents=reviews.count, unreadable=reviews.failed, findings=findings)


def _lines(reviews: MapResults[DocumentReview]) -> Iterator[str]:
    for item in reviews:
        if item.result is not None:
            yield json.dumps(item.result.model_dump(mode="json"), ensure_ascii=False) + "\n"
