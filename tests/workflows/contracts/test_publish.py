"""A publication happens once for each key, only where it is allowed, and whole or not at all."""

import hashlib
import io
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from tasks_app.workflows.contracts import publish as publishing
from tasks_app.workflows.contracts.model import Publication
from tasks_app.workflows.contracts.problems import PublicationError
from tasks_app.workflows.contracts.publish import PublishedFile, check_target, publish

KEY = "2f0c7f1e:publish_report"


def make_file(name: str = "report.html", content: bytes = b"<p>report</p>") -> PublishedFile:
    return PublishedFile(
        name=name,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        media_type="text/html",
        open=lambda: io.BytesIO(content),
    )


def to_folder(target: Path, root: Path, key: str = KEY, *files: PublishedFile) -> Publication:
    chosen = files or (make_file(),)
    return publish(str(target), key, chosen, name="contract-review", roots=[root], hosts=[])


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(PublicationError) as caught:
        act()
    return caught.value.code


def test_folder_holds_files_and_manifest(tmp_path: Path) -> None:
    done = to_folder(tmp_path / "out" / "new", tmp_path)
    folder = Path(done.target)
    manifest = json.loads((folder / "manifest.json").read_text())
    content = (folder / "report.html").read_bytes()
    assert folder.parent == tmp_path / "out" / "new"
    assert manifest["key"] == KEY
    assert manifest["files"][0]["sha256"] == hashlib.sha256(content).hexdigest()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_same_key_publishes_once(tmp_path: Path) -> None:
    """The second call finds the first publication and touches nothing."""
    first = to_folder(tmp_path, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in Path(first.target).iterdir()}
    second = to_folder(tmp_path, tmp_path)
    assert second.target == first.target
    assert (first.replayed, second.replayed) == (False, True)
    assert {path: path.stat().st_mtime_ns for path in Path(first.target).iterdir()} == before


def test_another_key_is_another_publication(tmp_path: Path) -> None:
    assert to_folder(tmp_path, tmp_path).target != to_folder(tmp_path, tmp_path, "other").target


def test_same_key_with_other_content_is_refused(tmp_path: Path) -> None:
    to_folder(tmp_path, tmp_path)
    other = make_file(content=b"changed")
    assert code_of(lambda: to_folder(tmp_path, tmp_path, KEY, other)) == "publication_differs"


def test_many_at_once_make_one_publication(tmp_path: Path) -> None:
    barrier = threading.Barrier(6)
    results: list[Publication] = []

    def act() -> None:
        barrier.wait()
        results.append(to_folder(tmp_path, tmp_path))

    threads = [threading.Thread(target=act) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({done.target for done in results}) == 1
    assert len(results) == 6
    assert [path.name for path in tmp_path.iterdir()] == [results[0].reference]


def test_interrupted_publication_leaves_nothing_behind(tmp_path: Path) -> None:
    """A digest that does not fit stops it before anything can be seen."""
    broken = PublishedFile("a.csv", "0" * 64, 3, "text/csv", lambda: io.BytesIO(b"abc"))
    assert code_of(lambda: to_folder(tmp_path, tmp_path, KEY, broken)) == "digest_mismatch"
    assert list(tmp_path.iterdir()) == []
    assert to_folder(tmp_path, tmp_path).replayed is False


@pytest.mark.parametrize("name", ["../a", "a/b", ".hidden", "manifest.json"])
def test_file_names_stay_inside(tmp_path: Path, name: str) -> None:
    assert code_of(lambda: to_folder(tmp_path, tmp_path, KEY, make_file(name))) == "bad_name"


def test_folder_must_be_allowed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    (root / "file").write_text("x")
    for target, code in (
        (str(tmp_path / "else"), "target_not_allowed"),
        (str(root / ".." / "else"), "target_not_allowed"),
        (str(root / "link" / "x"), "target_not_allowed"),
        ("relative/path", "target_not_absolute"),
        (str(root / "file"), "target_not_a_folder"),
    ):
        assert code_of(partial(check_target, target, [root], [])) == code
    check_target(str(root / "new"), [root], [])


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("https://evil.example/x", "host_not_allowed"),
        ("https://good.example.evil.example/x", "host_not_allowed"),
        ("https://good.example@evil.example/x", "bad_address"),
        ("https://user:password@good.example/x", "bad_address"),
        ("http://good.example/x", "bad_address"),
        ("https://good.example:444/x#y", "bad_address"),
        ("https://good.example:port/", "bad_address"),
        ("https:///x", "bad_address"),
    ],
)
def test_address_must_be_allowed(address: str, code: str) -> None:
    assert code_of(lambda: check_target(address, [], ["good.example"])) == code


def test_allowed_addresses() -> None:
    check_target("https://good.example/reports?x=1", [], ["Good.Example"])
    check_target("https://other.example:8443/", [], ["other.example:8443"])
    check_target("http://127.0.0.1:8000/", [], ["127.0.0.1:8000"])


class Endpoint:
    """A real server that keeps what it got and answers as a test says."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.seen.append((self.headers["Idempotency-Key"], body))
                status, headers, answer = endpoint.answers.pop(0)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            @override
            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def publish(self) -> Publication:
        return publish(
            f"http://{self.host}/reports", KEY, [make_file()], name="contract-review",
            roots=[], hosts=[self.host],
        )  # fmt: skip

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    yield server
    server.stop()


def test_endpoint_gets_key_manifest_and_files(endpoint: Endpoint) -> None:
    endpoint.answers = [(201, {"Location": "/reports/7"}, b"{}")]
    done = endpoint.publish()
    assert (done.kind, done.reference, done.replayed) == ("http", "/reports/7", False)
    ((key, body),) = endpoint.seen
    assert key == KEY
    assert b'name="manifest"' in body
    assert b"<p>report</p>" in body


@pytest.mark.parametrize(
    ("headers", "body"),
    [({"Idempotency-Key": KEY}, b""), ({}, json.dumps({"idempotencyKey": KEY}).encode())],
)
def test_conflict_on_the_same_key_counts_as_done(
    endpoint: Endpoint, headers: dict[str, str], body: bytes
) -> None:
    endpoint.answers = [(409, headers, body)]
    assert endpoint.publish().replayed is True


@pytest.mark.parametrize(
    ("status", "headers", "code", "retryable"),
    [
        (409, {"Idempotency-Key": "another"}, "refused", False),
        (400, {}, "refused", False),
        (403, {}, "refused", False),
        (302, {"Location": "https://evil.example/"}, "redirected", False),
        (503, {}, "refused", True),
        (429, {}, "refused", True),
    ],
)
def test_refusals(
    endpoint: Endpoint, status: int, headers: dict[str, str], code: str, *, retryable: bool
) -> None:
    endpoint.answers = [(status, headers, b"no")]
    with pytest.raises(PublicationError) as caught:
        endpoint.publish()
    assert (caught.value.code, caught.value.retryable) == (code, retryable)
    assert len(endpoint.seen) == 1


def test_endless_answer_is_cut(endpoint: Endpoint) -> None:
    endpoint.answers = [(200, {}, b"x" * (publishing.MAX_ANSWER_BYTES * 4))]
    assert code_of(endpoint.publish) == "answer_too_large"


def test_unreachable_endpoint_may_be_tried_again(endpoint: Endpoint) -> None:
    endpoint.server.server_close()
    with pytest.raises(PublicationError) as caught:
        endpoint.publish()
    assert (caught.value.code, caught.value.retryable) == ("not_reached", True)


def test_size_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "MAX_BYTES", 5)
    assert code_of(lambda: to_folder(tmp_path, tmp_path)) == "too_large"
