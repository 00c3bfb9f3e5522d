"""Artifacts over REST: the right bytes, to the right people, never run by a browser."""

import pytest

from tasks_app.api.files import safe_name
from tests.api.calls import api_of
from tests.api.world import CONTENT, World, make_world

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return make_world()


def test_artifact_names_where_its_bytes_are(world: World) -> None:
    """Facts first; the address of the content is part of them."""
    api = api_of(world.tenant, "viewer")
    body = api.get(world.path("/runtime/artifacts/{artifact}")).json()
    assert (body["sha256"], body["sizeBytes"]) == (world.artifact.sha256, len(CONTENT))
    assert body["contentUrl"] == world.path("/runtime/artifacts/{artifact}/content")
    (item,) = api.get(world.path("/runtime/tasks/{task}/artifacts")).json()["items"]
    assert item == body


def test_a41_content_is_a_download_in_a_sandbox(world: World) -> None:
    """A41 and S126: HTML with a script is an attachment that nothing runs; the name is ours."""
    answer = api_of(world.tenant, "viewer").get(world.path("/runtime/artifacts/{artifact}/content"))
    assert b"".join(answer.streaming_content) == CONTENT
    assert answer.headers["Content-Disposition"] == 'attachment; filename="report.html"'
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
    assert answer.headers["Content-Length"] == str(len(CONTENT))


def test_content_that_is_known_is_not_sent_again(world: World) -> None:
    """The digest is the ETag."""
    answer = api_of(world.tenant, "viewer").get(
        world.path("/runtime/artifacts/{artifact}/content"),
        If_None_Match=f'"{world.artifact.sha256}"',
    )
    assert answer.status_code == 304


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../../etc/passwd", "passwd"),
        ("a\\b\\c.txt", "c.txt"),
        (".htaccess", "htaccess"),
        ("line\r\nbreak\x00.txt", "linebreak.txt"),
        ("报告.html", "报告.html"),
        ("", "artifact"),
        ("x" * 300, "x" * 200),
    ],
)
def test_file_names_are_harmless(name: str, safe: str) -> None:
    """No folder, no control character, no leading dot."""
    assert safe_name(name) == safe
