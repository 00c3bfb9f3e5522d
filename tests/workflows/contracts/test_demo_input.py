"""The demo's documents: real licence texts of this environment, the same at every call."""

from pathlib import Path

from tasks_app.workflows.contracts.demo_input import collect_installed_licences
from tasks_app.workflows.contracts.discovery import list_documents


def test_licences_are_collected_once_and_stay(tmp_path: Path) -> None:
    """A second call finds the same files and leaves their times alone."""
    count = collect_installed_licences(tmp_path)
    before = list(list_documents(tmp_path))
    assert collect_installed_licences(tmp_path) == count
    assert list(list_documents(tmp_path)) == before
    assert len(before) == count > 100


def test_names_are_readable(tmp_path: Path) -> None:
    collect_installed_licences(tmp_path)
    paths = [document.path for document in list_documents(tmp_path)]
    assert any(path.startswith("django-5.2") and path.endswith("/LICENSE") for path in paths)
    assert any(path.startswith("httpx-") and path.endswith("/METADATA.txt") for path in paths)
