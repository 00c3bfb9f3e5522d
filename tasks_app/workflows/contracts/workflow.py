"""The job `contracts.review`: reads a folder of legal documents and writes a report about them.

Only the declaration and the order of steps; what each step does is in the modules beside it.
"""

import tempfile
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from django.utils.translation import gettext_noop as _
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from tasks_app import conf
from tasks_app.workflows import (
    ArtifactRef,
    CheckpointPolicy,
    Collect,
    EffectNotDoneError,
    GoalError,
    ItemError,
    ItemList,
    MapItem,
    MapResults,
    Retry,
    StepContext,
    Workflow,
    effect,
    step,
    workflow,
)

from . import report as reporting
from .clauses import review_text
from .discovery import UNREAD, Tally, compile_exclusions, list_documents, resolve_folder
from .html_report import ReportHead
from .model import Document, DocumentReview, Publication
from .problems import DocumentError, FolderError, PublicationError
from .publish import PublishedFile, check_target, publish
from .reading import read_document
from .rules import load_rules
from .summary import Summary

PUBLICATION_NAME = "contract-review"
_TOP_RISKS = 5

_ShortText = Annotated[str, Field(min_length=1, max_length=300)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ReviewGoal(_Model):
    """What to review, what matters most, and where the report goes."""

    folder: str = Field(
        title=_("Folder"),
        description=_(
            "Absolute path of a folder of documents: txt, md, html, pdf, docx. "
            "It must lie inside a folder that this installation allows to be read. "
            "Folders inside it are read too."
        ),
        min_length=1,
    )
    focus: list[_ShortText] = Field(
        default_factory=list,
        title=_("Focus"),
        description=_(
            "What matters most, one a line. It counts more and comes first; everything is "
            "still reviewed. Categories: liability, indemnity, term, confidentiality, disputes, "
            "transfer, warranty, copyleft, patents, privacy, restraint, audit, payment, ip, notices, "
            "trademark, export, force_majeure. A rule's id works too, for example auto_renewal."
        ),
        max_length=50,
    )
    exclude: list[_ShortText] = Field(
        default_factory=list,
        title=_("Leave out"),
        description=_(
            "Path patterns, one a line, for example drafts or **/old/*.pdf. "
            "* stays inside a folder, ** crosses folders."
        ),
        max_length=200,
    )
    publish_to: str | None = Field(
        default=None,
        title=_("Publish to"),
        description=_(
            "Absolute path of a folder inside one that this installation allows, or an allowed "
            "https address. A person is asked first. "
            "Empty: the report stays here and nobody is asked."
        ),
    )
    language: Literal["en", "zh"] = Field(
        default="en",
        title=_("Language of the report"),
        description=_("The documents may be in English or Chinese either way."),
    )


class Manifest(_Model):
    """The documents of the folder as they were when the task listed them."""

    folder: str
    listed_at: str
    documents: ItemList
    excluded: int
    other_files: int
    passed_over: int


class TopRisk(_Model):
    """One of the documents to read first."""

    path: str
    score: int
    level: str
    reason: str


class ReviewReport(_Model):
    """What the task hands over: figures, where the files are, and what to read first."""

    folder: str
    rules: str
    documents: int
    reviewed: int
    unreadable: int
    clauses: int
    levels: dict[str, int]
    top_risks: list[TopRisk]
    files: list[ArtifactRef]
    publication: Publication | None = None


@workflow(
    name="contracts.review",
    version=1,
    title=_("Review contracts and licences"),
    description=_(
        "Reads a folder of legal documents, finds clauses in English and Chinese with the "
        "sentences that show them, scores the risk, and writes a report."
    ),
    acts=(_("Publishes the report to a folder or an HTTP endpoint, after a person's approval"),),
)
class ReviewContracts(Workflow[ReviewGoal, ReviewReport]):
    """List, review one by one, write the report, ask, publish."""

    checkpoint = CheckpointPolicy(every_steps=10, max_seconds=60)
    approve_before = ("publish_report",)

    @override
    def check(self, goal: ReviewGoal) -> None:
        settings = conf.runtime()
        try:
            folder = resolve_folder(goal.folder, settings.input_roots)
            compile_exclusions(goal.exclude)
            if next(list_documents(folder, goal.exclude), None) is None:
                raise FolderError("no_documents", "The folder holds no document to review.")
        except FolderError as error:
            pointer = "/exclude" if error.code == "bad_pattern" else "/folder"
            raise GoalError(pointer, error.code, error.message) from error
        for number, name in enumerate(goal.focus):
            if not load_rules().is_focus(name):
                raise GoalError(
                    f"/focus/{number}", "unknown_focus", f"{name} is no category and no rule."
                )
        if goal.publish_to:
            try:
                check_target(goal.publish_to, settings.publish_roots, settings.publish_hosts)
            except PublicationError as error:
                raise GoalError("/publish_to", error.code, error.message) from error

    @override
    def plan(self, goal: ReviewGoal, p: Any) -> Any:
        manifest = p.step(self.load_manifest, goal.folder, goal.exclude)
        reviews = p.map(
            self.review_document,
            manifest.field("documents"),
            load_rules().sha256[:16],
            chunk=20,
            on_error=Collect(),
        )
        report = p.step(self.write_report, reviews, manifest, goal.focus, goal.language)
        if not goal.publish_to:
            return report
        ok = p.approval(
            "publish_report", show=report, deadline=timedelta(hours=24), on_timeout="deny"
        )
        publication = p.effect(self.publish_report, report, goal.publish_to, approval=ok)
        return p.step(self.finish, report, publication)

    @step(title=_("Reading"), retry=Retry(max=2), timeout_seconds=300, pure=True)
    def load_manifest(self, ctx: StepContext, folder: str, exclude: list[str]) -> Manifest:
        """List the documents of the folder with size and time of change."""
        real = resolve_folder(folder, conf.runtime().input_roots)
        tally = Tally()
        documents = ctx.items("documents", list_documents(real, exclude, tally))
        return Manifest(
            folder=str(real),
            listed_at=f"{ctx.now:%Y-%m-%d %H:%M} UTC",
            documents=documents,
            excluded=tally.excluded,
            other_files=tally.other_files,
            passed_over=tally.too_deep + tally.linked_folders,
        )

    @step(title=_("Reviewing"), retry=Retry(max=3), timeout_seconds=180, pure=True)
    def review_document(self, ctx: StepContext, document: Document, rules: str) -> DocumentReview:
        """Read one document and find its clauses.

        Args:
            ctx: What a step may use.
            document: The file.
            rules: Digest of the rule file; a new one means that kept results are out of date.
        """
        if document.problem:
            raise ItemError(document.problem, UNREAD[document.problem])
        try:
            text = read_document(Path(document.folder), document.path)
        except DocumentError as error:
            raise ItemError(error.code, error.message) from error
        return review_text(document.path, text, load_rules())

    @step(title=_("Writing report"), timeout_seconds=900, pure=True)
    def write_report(
        self,
        ctx: StepContext,
        reviews: MapResults[DocumentReview],
        manifest: Manifest,
        focus: list[str],
        language: str,
    ) -> ReviewReport:
        """Write the report's files and return the figures."""
        head = ReportHead(
            folder=manifest.folder,
            made_at=manifest.listed_at,
            task=str(ctx.task_id),
            language=language,
            excluded=manifest.excluded,
            other_files=manifest.other_files,
            passed_over=manifest.passed_over,
        )

        def tell(done: int) -> None:
            ctx.progress(done, reviews.count, "Writing report")

        with tempfile.TemporaryDirectory(prefix="contract-review-") as scratch:
            summary = reporting.write_report(
                Path(scratch),
                map(_outcome, reviews),
                head=head,
                book=load_rules(),
                focus=focus,
                tell=tell,
            )
            files = [
                ctx.artifact(name, Path(scratch) / name, media_type)
                for name, media_type in reporting.MEDIA_TYPES.items()
            ]
        return _report(head, summary, files)

    @effect(kind="keyed", title=_("Publish the report"), retry=Retry(max=3), timeout_seconds=120)
    def publish_report(
        self, ctx: StepContext, report: ReviewReport, publish_to: str
    ) -> Publication:
        """Publish the report's files once, to a folder or an HTTP endpoint."""
        settings = conf.runtime()
        files = [
            PublishedFile(
                name=item.name,
                sha256=item.sha256,
                size_bytes=item.size_bytes,
                media_type=item.media_type,
                open=partial(ctx.open_artifact, item),
            )
            for item in report.files
        ]
        try:
            return publish(
                publish_to,
                ctx.effect_key,
                files,
                name=PUBLICATION_NAME,
                roots=settings.publish_roots,
                hosts=settings.publish_hosts,
            )
        except PublicationError as error:
            if error.retryable:
                raise
            raise EffectNotDoneError(error.code, error.message) from error

    @step(title=_("Finishing"), pure=True)
    def finish(
        self, ctx: StepContext, report: ReviewReport, publication: Publication | None
    ) -> ReviewReport:
        """Return the report with the publication, or without one when it was not approved."""
        return report.model_copy(update={"publication": publication})


def _outcome(item: MapItem[DocumentReview]) -> reporting.Outcome:
    return reporting.Outcome(
        index=item.index,
        path=str(item.item["path"]),
        review=item.result,
        fault=item.error,
    )


def _report(head: ReportHead, summary: Summary, files: list[ArtifactRef]) -> ReviewReport:
    return ReviewReport(
        folder=head.folder,
        rules=summary.book.version,
        documents=summary.reviewed + summary.failed,
        reviewed=summary.reviewed,
        unreadable=summary.failed,
        clauses=summary.findings,
        levels={level.value: count for level, count in summary.levels.items()},
        top_risks=list(_top_risks(summary, head.language)),
        files=files,
    )


def _top_risks(summary: Summary, language: str) -> Iterator[TopRisk]:
    for row in summary.by_score()[:_TOP_RISKS]:
        yield TopRisk(
            path=row.path,
            score=row.score,
            level=row.level.value,
            reason=reporting.reason_title(row.main, summary.book, language) if row.main else "",
        )
