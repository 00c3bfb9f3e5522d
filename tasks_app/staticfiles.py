"""Storage of static files: hashed names, also inside JavaScript modules."""

from whitenoise.storage import CompressedManifestStaticFilesStorage


class ModuleAwareManifestStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Rewrites `import './live.js'` to the hashed name, so that modules may be cached for ever."""

    support_js_module_import_aggregation = True
