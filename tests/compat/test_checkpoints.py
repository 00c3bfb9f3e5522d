"""Checkpoints of every released version load for ever (E52)."""

import json
from pathlib import Path

import pytest

from ledger_app.domain.canonical import canonical_text
from tasks_app.domain import checkpoint
from tasks_app.domain.errors import CorruptCheckpointError

FOLDER = Path(__file__).parent / "checkpoints"
GOLDEN = sorted(FOLDER.glob("v*/*.json"))


def stored(path: Path) -> tuple[str, str]:
    golden = json.loads(path.read_text(encoding="utf-8"))
    return golden["text"], golden["sha256"]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_golden_checkpoint_loads(path: Path) -> None:
    """A document of an older release is verified as it was written, then brought up to date."""
    text, sha256 = stored(path)
    before = json.loads(text)
    document = checkpoint.parse(text, sha256)
    assert document.schema_version == checkpoint.SCHEMA_VERSION
    assert before["schema_version"] == int(path.parent.name[1:])
    for name in before.keys() - {"schema_version"}:
        assert getattr(document, name) == before[name], name
    assert checkpoint.parse(document.text(), checkpoint.digest(document.text())) == document


def test_every_schema_version_has_golden_files_and_a_way_up() -> None:
    """A new schema cannot be released without documents of the one before."""
    versions = range(1, checkpoint.SCHEMA_VERSION + 1)
    assert {path.parent.name for path in GOLDEN} == {f"v{number}" for number in versions}
    assert set(checkpoint.UPGRADES) == set(versions[:-1])


def test_one_changed_byte_is_found() -> None:
    """E51: the checksum is of the text as it was stored, whatever its schema."""
    text, sha256 = stored(GOLDEN[0])
    with pytest.raises(CorruptCheckpointError, match="checksum"):
        checkpoint.parse(text.replace('"fence":1', '"fence":2'), sha256)


@pytest.mark.parametrize("version", [checkpoint.SCHEMA_VERSION + 1, 99])
def test_newer_schema_is_refused_not_guessed(version: int) -> None:
    """E52: what a newer release wrote is not understood here, and that is said."""
    text, _ = stored(GOLDEN[-1])
    newer = canonical_text({**json.loads(text), "schema_version": version})
    with pytest.raises(CorruptCheckpointError, match="newer than this installation") as caught:
        checkpoint.parse(newer, checkpoint.digest(newer))
    assert caught.value.fields == {"schema_version": version}


@pytest.mark.parametrize("version", [0, -1, "1x", None])
def test_schema_that_never_was_is_no_document(version: object) -> None:
    """A number that no release wrote leads to the same dead letter, not to a crash."""
    text, _ = stored(GOLDEN[0])
    wrong = canonical_text({**json.loads(text), "schema_version": version})
    with pytest.raises(CorruptCheckpointError):
        checkpoint.parse(wrong, checkpoint.digest(wrong))
