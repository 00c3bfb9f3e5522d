"""JSON Schema as forms need it: one plain schema for each control, in the reader's language."""

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext

Schema = Mapping[str, Any]


def plain_schema(root: Schema, part: Schema) -> dict[str, Any]:
    """Resolve `$ref` and "X or null" into the schema that the control is for.

    Titles and descriptions are translated where the catalogue knows them: a workflow marks them
    with `gettext_noop`, since its schema is made once for all readers.
    """
    merged = dict(part)
    for _depth in range(8):
        if "$ref" in merged:
            target = _resolve(root, str(merged.pop("$ref")))
            merged = {**target, **merged}
        elif len(merged.get("allOf", ())) == 1:
            merged = {**merged.pop("allOf")[0], **merged}
        elif "anyOf" in merged:
            options = [o for o in merged["anyOf"] if o.get("type") != "null"]
            if len(options) != 1:
                break
            merged.pop("anyOf")
            merged = {**options[0], **merged}
        else:
            break
    if isinstance(merged.get("items"), Mapping):
        merged["items"] = _with_target(root, merged["items"])
    for name in ("title", "description"):
        if merged.get(name):
            merged[name] = gettext(str(merged[name]))
    return merged


def _with_target(root: Schema, item: Schema) -> Schema:
    return {**_resolve(root, str(item["$ref"])), **item} if "$ref" in item else item


def _resolve(root: Schema, reference: str) -> Mapping[str, Any]:
    target: Any = root
    for part in reference.removeprefix("#/").split("/"):
        target = target.get(part, {})
    return target if isinstance(target, Mapping) else {}
