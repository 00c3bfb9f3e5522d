"""Artifacts: their facts, and their bytes as a download that no browser will run."""

import re
from typing import ClassVar
from uuid import UUID

from django.http import FileResponse
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from tasks_app.api.base import RuntimeView, answer
from tasks_app.api.documented import documented
from tasks_app.api.records import ArtifactOut
from tasks_app.domain.errors import NotFoundError
from tasks_app.queries.artifacts import get_artifact
from tasks_app.tools.artifact_store import open_blob

_PLAIN_TYPE = re.compile(r"[a-z]+/[a-z0-9.+-]+")


class ArtifactObjectView(RuntimeView):
    """A route below one artifact."""

    capabilities: ClassVar = {"GET": "artifacts:read"}

    @override
    def look_up(self) -> None:
        """Refuse an artifact that is not visible."""
        get_artifact(self.principal, self.kwargs["artifact_id"])


class ArtifactView(ArtifactObjectView):
    """The facts of one artifact."""

    @documented("getArtifact", "Read an artifact's facts", capability="artifacts:read",
                returns=ArtifactOut)  # fmt: skip
    def get(self, request: Request, artifact_id: UUID) -> Response:
        """Return name, size, digest and where the bytes are."""
        return answer(ArtifactOut.of(get_artifact(self.principal, artifact_id)))


class ArtifactContentView(ArtifactObjectView):
    """The bytes of one artifact."""

    @documented("getArtifactContent", "Download an artifact", capability="artifacts:read",
                returns=bytes)  # fmt: skip
    def get(self, request: Request, artifact_id: UUID) -> FileResponse | Response:
        """Return the bytes as an attachment in a sandbox; 304 when the digest is known (S126)."""
        found = get_artifact(self.principal, artifact_id)
        etag = f'"{found.sha256}"'
        if request.headers.get("If-None-Match") == etag:
            return Response(status=304, headers={"ETag": etag})
        try:
            content = open_blob(found.tenant_id, found.sha256)
        except FileNotFoundError:
            raise NotFoundError("Not found.") from None
        plain = _PLAIN_TYPE.match(found.media_type)
        return FileResponse(
            content,
            as_attachment=True,
            filename=safe_name(found.name),
            content_type=plain[0] if plain else "application/octet-stream",
            headers={
                "Content-Length": str(found.size_bytes),
                "ETag": etag,
                "Content-Security-Policy": "sandbox; default-src 'none'",
                "X-Content-Type-Options": "nosniff",
            },
        )


def safe_name(name: str) -> str:
    """Return a file name without folders, control characters or leading dots."""
    last = re.split(r"[\\/]", name)[-1]
    kept = "".join(character for character in last if character.isprintable())
    return kept.lstrip(".")[-200:] or "artifact"
