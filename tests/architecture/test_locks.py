"""Rules about what gets installed: every line is pinned and hashed, no address is recorded."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
_PIN = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)(\[[a-z,]+\])?==[^ ]+( ; .+)? \\$", re.I)
_ADDRESS = re.compile(r"://|--index-url|--extra-index-url|--find-links|--trusted-host| @ ")


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_lock_pins_and_hashes_every_package(path: Path) -> None:
    """S150: each requirement has one exact version and at least one SHA-256."""
    wrong = []
    blocks = re.split(r"\n(?=[A-Za-z0-9])", path.read_text())
    for block in blocks:
        if block.startswith("#") or not block.strip():
            continue
        first = block.splitlines()[0]
        if not _PIN.match(first) or "--hash=sha256:" not in block:
            wrong.append(first)
    assert wrong == []
    assert len(blocks) > 0


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_lock_records_no_address(path: Path) -> None:
    """A lock names packages, never where somebody once fetched them from."""
    assert [line for line in path.read_text().splitlines() if _ADDRESS.search(line)] == []


def test_lock_of_the_javascript_client_is_hashed_and_records_no_address() -> None:
    """What its tests install comes from whatever registry the machine uses, checked."""
    folder = ROOT / "tests/clients/js"
    lock = json.loads((folder / "package-lock.json").read_text())
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert [name for name, entry in packages.items() if "integrity" not in entry] == []
    assert [name for name, entry in packages.items() if "resolved" in entry] == []
    assert "registry=" not in (folder / ".npmrc").read_text()
    named = json.loads((folder / "package.json").read_text())["dependencies"]
    locked = {name: packages[f"node_modules/{name}"]["version"] for name in named}
    assert named == locked


def test_each_lock_is_part_of_the_next() -> None:
    """What tests run with is what production installs."""
    pins = [
        {line.split(" ")[0] for line in (ROOT / "requirements" / name).read_text().splitlines()}
        for name in ("runtime.txt", "oauth.txt", "dev.txt")
    ]
    runtime, oauth = ({pin for pin in lock if "==" in pin} for lock in pins[:2])
    assert runtime < oauth < pins[2]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert set(extras["oauth"]) <= set((ROOT / "requirements/oauth.in").read_text().splitlines())


def test_every_direct_dependency_is_locked_and_justified() -> None:
    """Each line of the .in files is in its lock and in docs/decisions/dependencies.md."""
    page = (ROOT / "docs/decisions/dependencies.md").read_text()
    missing = []
    for source in sorted((ROOT / "requirements").glob("*.in")):
        lock = source.with_suffix(".txt").read_text().lower()
        for line in source.read_text().splitlines():
            name = re.split(r"[\[<>=!~; ]", line.strip())[0].lower()
            if not name or name.startswith(("#", "-")):
                continue
            if f"\n{name}==" not in f"\n{lock}" or f"`{name}`" not in page:
                missing.append(f"{source.name}: {name}")
    assert missing == []
