"""Which files are documents, in which order, and which folders may be read at all."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks_app.workflows.contracts import discovery
from tasks_app.workflows.contracts.discovery import (
    Tally,
    compile_exclusions,
    list_documents,
    resolve_folder,
)
from tasks_app.workflows.contracts.problems import FolderError
from tests.workflows.contracts.documents import write


def paths(folder: Path, *exclude: str) -> list[str]:
    return [document.path for document in list_documents(folder, exclude)]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("contract.pdf", True), ("LICENSE", True), ("LICENSE.MIT", True), ("copyright", True),
        ("COPYING.LESSER", True), ("notice.html", True), ("old.doc", True), ("readme", True),
        ("photo.png", False), ("licence.py", False), ("data.csv", False), ("app.js", False),
        ("changelog.gz", False), ("image.bin", False), ("README.Debian", True),
        ("gtk-3.0-common_copyright", True), ("numpy-2.4.dist-info_LICENSE", True),
        ("supply agreement.v2", True), ("lease 1.2", True), ("notices.rb", False),
    ],
)  # fmt: skip
def test_document_names(name: str, *, wanted: bool) -> None:
    assert discovery.is_document_name(name) is wanted


def test_order_is_by_name_and_hidden_files_are_left_out(tmp_path: Path) -> None:
    names = ["b/2.txt", "b/10.txt", "a.txt", "c.txt", ".hidden.txt", ".git/config.txt", "b/.x/y.md"]
    write(tmp_path, dict.fromkeys(names, "text"))
    assert paths(tmp_path) == ["a.txt", "c.txt", "b/10.txt", "b/2.txt"]


def test_item_changes_when_the_file_changes(tmp_path: Path) -> None:
    """A changed file is another item, so its old result is not kept."""
    write(tmp_path, {"a.txt": "one"})
    (before,) = list_documents(tmp_path)
    assert list(list_documents(tmp_path)) == [before]
    os.utime(tmp_path / "a.txt", ns=(1, 1_700_000_000_000_000_001))
    (after,) = list_documents(tmp_path)
    assert after.modified_at == "2023-11-14T22:13:20.000000001Z"
    assert after != before


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("drafts", ["a.txt", "x/b.txt"]),
        ("*.txt", []),
        ("x/*", ["a.txt", "drafts/c.txt", "y/drafts/d.txt"]),
        ("**/drafts/**", ["a.txt", "x/b.txt"]),
        ("?.txt", []),
        ("/a.txt", ["x/b.txt", "drafts/c.txt", "y/drafts/d.txt"]),
        ("[a].txt", ["a.txt", "drafts/c.txt", "x/b.txt", "y/drafts/d.txt"]),
    ],
)
def test_exclusion(tmp_path: Path, pattern: str, left: list[str]) -> None:
    write(tmp_path, dict.fromkeys(["a.txt", "x/b.txt", "drafts/c.txt", "y/drafts/d.txt"], "text"))
    assert sorted(paths(tmp_path, pattern)) == sorted(left)


def test_hostile_pattern_is_refused() -> None:
    with pytest.raises(FolderError, match="bad_pattern"):
        compile_exclusions(["*a" * 20 + "b"])
    with pytest.raises(FolderError, match="bad_pattern"):
        compile_exclusions(["x"] * 1000)


def test_what_is_passed_over_is_counted(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "x", "b.png": "x", "sub/c.txt": "x"})
    (tmp_path / "again").symlink_to("sub")
    tally = Tally()
    assert len(list(list_documents(tmp_path, ["sub"], tally))) == 1
    assert (tally.other_files, tally.excluded, tally.linked_folders) == (1, 1, 1)


def problems(folder: Path, *exclude: str) -> dict[str, str]:
    return {document.path: document.problem for document in list_documents(folder, exclude)}


def test_name_that_is_not_utf8_is_listed_with_escapes(tmp_path: Path) -> None:
    """Two names never look the same, and a folder of such a name is listed, too."""
    write(tmp_path, {"a.txt": "x", "caf\\xe9.txt": "x"})
    raw = os.fsencode(tmp_path)
    for name in (b"caf\xe9.txt", b"photo\xe9.png", b"back\\slash\xff.txt"):
        Path(os.fsdecode(raw + b"/" + name)).write_text("x")
    Path(os.fsdecode(raw + b"/dir\xe9")).mkdir()
    tally = Tally()
    listed = list(list_documents(tmp_path, (), tally))
    assert [(item.path, item.problem) for item in listed] == [
        ("a.txt", ""),
        (r"back\\slash\xff.txt", "bad_name"),
        (r"caf\xe9.txt", ""),
        (r"caf\xe9.txt", "bad_name"),
        (r"dir\xe9/", "bad_name"),
    ]
    assert tally.other_files == 1
    assert listed == list(list_documents(tmp_path))


def test_readable_file_is_the_same_item_as_before_problems_were_listed(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "x"})
    (document,) = list_documents(tmp_path)
    assert set(document.model_dump(mode="json")) == {"folder", "path", "size_bytes", "modified_at"}


def test_pipe_and_socket_are_listed_whatever_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe.bin")
    monkeypatch.chdir(tmp_path)  # an address of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("wire.sock")
        assert problems(tmp_path) == {"pipe.bin": "not_a_file", "wire.sock": "not_a_file"}
    assert problems(tmp_path, "*.sock") == {"pipe.bin": "not_a_file"}


def test_link_in_a_circle_is_listed(tmp_path: Path) -> None:
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    assert paths(tmp_path) == ["loop.txt"]


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with one that may not be listed, and one whose entries may not be looked at."""
    write(tmp_path, {"a.txt": "x", "b/c.txt": "x", "d/e.txt": "x", "d/f.png": "x", "g.txt": "x"})
    (tmp_path / "d" / "sub").mkdir()
    tmp_path.chmod(0o755)
    (tmp_path / "b").chmod(0)
    (tmp_path / "d").chmod(0o444)
    monkeypatch.chdir(tmp_path)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may list every folder, nobody may not
    try:
        yield Path()  # not by its whole path: nobody may not pass the folders above
    finally:
        os.seteuid(user)
        (tmp_path / "b").chmod(0o755)
        (tmp_path / "d").chmod(0o755)


def test_closed_folders_are_listed(closed: Path) -> None:
    assert list(problems(closed).items()) == [
        ("a.txt", ""),
        ("g.txt", ""),
        ("b/", "folder_not_readable"),
        ("d/e.txt", "permission_denied"),
        ("d/sub/", "folder_not_readable"),
    ]
    assert list(problems(closed, "b", "d/**")) == ["a.txt", "g.txt"]


def test_number_of_documents_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "MAX_DOCUMENTS", 3)
    write(tmp_path, {f"{number}.txt": "x" for number in range(4)})
    with pytest.raises(FolderError, match="too_many_documents"):
        list(list_documents(tmp_path))


def test_depth_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "MAX_DEPTH", 2)
    write(tmp_path, {"1/a.txt": "x", "1/2/b.txt": "x", "1/2/3/c.txt": "x"})
    tally = Tally()
    assert [d.path for d in list_documents(tmp_path, (), tally)] == ["1/a.txt", "1/2/b.txt"]
    assert tally.too_deep == 1


def code_of(folder: str, *roots: Path) -> str:
    with pytest.raises(FolderError) as caught:
        resolve_folder(folder, roots)
    return caught.value.code


def test_folder_must_lie_in_an_allowed_root(tmp_path: Path) -> None:
    """What exists outside the roots is not told apart from what does not."""
    root, other = tmp_path / "root", tmp_path / "other"
    write(tmp_path, {"root/in/a.txt": "x", "other/b.txt": "x"})
    (root / "link").symlink_to(other)
    assert resolve_folder(str(root / "in"), [root]) == (root / "in").resolve()
    assert code_of(str(other), root) == "folder_not_allowed"
    assert code_of(str(tmp_path / "missing"), root) == "folder_not_allowed"
    assert code_of(str(root / "link"), root) == "folder_not_allowed"
    assert code_of(str(root / "in" / ".." / ".." / "other"), root) == "folder_not_allowed"
    assert code_of(str(root / "missing"), root) == "folder_not_found"
    assert code_of(str(root / "in" / "a.txt"), root) == "not_a_folder"
    assert code_of("root/in", root) == "folder_not_absolute"
    assert code_of(str(root / "in")) == "folder_not_allowed"
