"""Every setting of the project, read from the environment, safe for production by default.

Runtime behaviour (leases, limits, roots) is read at call time through `tasks_app.conf`, never from
here at import. The list for operators is docs/reference/settings.md.
"""

from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from kombu import Queue

from runtime_project import celery as _celery  # noqa: F401 - every process that has settings sends to this broker
from runtime_project import env

BASE_DIR = Path(__file__).resolve().parent.parent

# demo = loopback only, marked on every page; test = the test run; production = everything else.
PROFILE = env.text("RUNTIME_PROFILE", "production")
if PROFILE not in {"production", "demo", "test"}:
    raise ImproperlyConfigured("RUNTIME_PROFILE must be production, demo or test")
PRODUCTION = PROFILE == "production"

SECRET_KEY = env.text("DJANGO_SECRET_KEY")
if len(SECRET_KEY) < 50:
    raise ImproperlyConfigured("DJANGO_SECRET_KEY must be set to at least 50 characters")
SECRET_KEY_FALLBACKS = list(env.words("DJANGO_SECRET_KEY_FALLBACKS"))
DEBUG = False
ALLOWED_HOSTS = list(env.words("DJANGO_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]"))
CSRF_TRUSTED_ORIGINS = list(env.words("DJANGO_CSRF_TRUSTED_ORIGINS"))

INSTALLED_APPS = [
    "runtime_project.apps.RuntimeAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "csp",
    "django_eventstream",
    "ledger_app.apps.LedgerAppConfig",
    "tasks_app.apps.TasksAppConfig",
    # Authors' own apps: their `durable.py` is imported like ours.
    *env.words("RUNTIME_APPS"),
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "runtime_project.readable.ReadableTextMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "runtime_project.urls"
ASGI_APPLICATION = "runtime_project.asgi.application"
APPEND_SLASH = False

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "tasks_app.dashboard.context.page",
            ]
        },
    }
]

# --- PostgreSQL: the only authority ---------------------------------------------------------
DATABASE_URL = env.text("DATABASE_URL")
if not DATABASE_URL:
    raise ImproperlyConfigured("DATABASE_URL must be set (postgresql://…)")
DATABASES = {
    "default": {
        **env.database(
            DATABASE_URL,
            role=env.text("DATABASE_ROLE"),
            application=env.text("RUNTIME_PROCESS", "perdure"),
            idle_transaction_seconds=env.seconds("DATABASE_IDLE_TRANSACTION_SECONDS", 15),
            prepare=env.flag("DATABASE_PREPARE", default=True),
        ),
        "CONN_MAX_AGE": env.integer("DATABASE_CONN_MAX_AGE", 0),
        "CONN_HEALTH_CHECKS": True,
        "ATOMIC_REQUESTS": False,
    }
}
if env.flag("DATABASE_POOL"):
    # For the web process under ASGI; a pool and long-lived connections exclude each other.
    DATABASES["default"]["CONN_MAX_AGE"] = 0
    # Our backend looks at what it takes from the pool, without a round trip.
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = False
    DATABASES["default"]["OPTIONS"]["pool"] = {"min_size": 1, "max_size": 8}  # type: ignore[index]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Redis: scheduling hints and short-lived events -----------------------------------------
REDIS_URL = env.text("REDIS_URL")
if not REDIS_URL:
    raise ImproperlyConfigured("REDIS_URL must be set (redis://… or unix://…)")
EVENTSTREAM_REDIS = {**env.redis_client(REDIS_URL), "socket_timeout": 5}
# Asked at every request: who waits longer goes on without it.
THROTTLE_REDIS = {
    **env.redis_client(REDIS_URL),
    "socket_timeout": 0.5,
    "socket_connect_timeout": 0.5,
}
EVENTSTREAM_CHANNELMANAGER_CLASS = "tasks_app.events.channels.TaskChannelManager"
EVENTSTREAM_ALLOW_ORIGIN = None

# --- Celery: see runtime_project/celery.py for the reasons ----------------------------------
CELERY_BROKER_URL = env.broker_url(env.text("REDIS_BROKER_URL", REDIS_URL))
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # Whoever asks for a channel is told at once that the broker is away; workers wait by themselves.
    "max_retries": 0,
    "socket_timeout": 2,
    "socket_connect_timeout": 2,
    "socket_keepalive": "redis+socket" not in CELERY_BROKER_URL,
    "health_check_interval": 10,
    "visibility_timeout": 3600,
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
}
CELERY_TASK_ACKS_LATE = False
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 0}
CELERY_TASK_DEFAULT_QUEUE = "slices"
CELERY_TASK_QUEUES = [Queue("slices")]
CELERY_TASK_CREATE_MISSING_QUEUES = False
CELERY_TASK_SOFT_TIME_LIMIT = env.integer("RUNTIME_JOB_SOFT_SECONDS", 3630)
CELERY_TASK_TIME_LIMIT = env.integer("RUNTIME_JOB_HARD_SECONDS", 3660)
CELERY_WORKER_DISABLE_PREFETCH = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_MAX_TASKS_PER_CHILD = 500
CELERY_WORKER_MAX_MEMORY_PER_CHILD = 400_000
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_TIMEZONE = "UTC"

# --- Identity, sessions, HTTP ---------------------------------------------------------------
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
AUTHENTICATION_BACKENDS = [
    "tasks_app.admission.sign_in.CountingBackend",
    "django.contrib.auth.backends.ModelBackend",
]
LOGIN_URL = "dashboard:login"
LOGIN_REDIRECT_URL = "/tasks/"
LOGOUT_REDIRECT_URL = "/login/"
SESSION_COOKIE_AGE = 8 * 3600
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = PRODUCTION
SESSION_COOKIE_NAME = "__Host-session" if PRODUCTION else "rt_session"
CSRF_COOKIE_SECURE = PRODUCTION
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_NAME = "__Host-csrf" if PRODUCTION else "rt_csrf"
SECURE_SSL_REDIRECT = PRODUCTION and env.flag("DJANGO_SSL_REDIRECT", default=True)
# REST answers 403 over plain HTTP instead, so that no key travels in the clear unnoticed (S122).
SECURE_REDIRECT_EXEMPT = [r"^runtime/(?!docs)"]
SECURE_PROXY_SSL_HEADER = (
    ("HTTP_X_FORWARDED_PROTO", "https") if env.flag("DJANGO_BEHIND_TLS_PROXY") else None
)
SECURE_HSTS_SECONDS = 31_536_000 if PRODUCTION else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = PRODUCTION
SECURE_HSTS_PRELOAD = PRODUCTION
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 1_048_576
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
        "object-src": [NONE],
    }
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["tasks_app.api.authentication.PrincipalAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["tasks_app.api.authentication.HasPrincipal"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["tasks_app.api.parsing.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "tasks_app.api.errors.handle",
    "NUM_PROXIES": env.integer("RUNTIME_TRUSTED_PROXY_COUNT", 0),
    "UNAUTHENTICATED_USER": None,
    "COERCE_DECIMAL_TO_STRING": True,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Perdure",
    "DESCRIPTION": "Durable, steerable agent tasks with a ledger.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "ENUM_NAME_OVERRIDES": {},
}

# --- Language, time, static files -----------------------------------------------------------
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LANGUAGE_COOKIE_NAME = "rt_language"
LANGUAGE_COOKIE_AGE = 365 * 86_400
LANGUAGE_COOKIE_HTTPONLY = True
LANGUAGE_COOKIE_SAMESITE = "Lax"
LANGUAGE_COOKIE_SECURE = PRODUCTION
LOCALE_PATHS = [BASE_DIR / "tasks_app" / "locale"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "/static/"
STATIC_ROOT = Path(env.text("RUNTIME_STATIC_ROOT", str(BASE_DIR / "staticfiles")))
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "tasks_app.staticfiles.ModuleAwareManifestStorage"},
}

# --- Runtime: read through tasks_app.conf ----------------------------------------------------
# What admission.throttles counts apart.
REQUEST_KINDS = ("read", "write", "create", "approvals", "login")

RUNTIME = {
    "lease_seconds": env.seconds("RUNTIME_LEASE_SECONDS", 30),
    "heartbeat_seconds": env.seconds("RUNTIME_HEARTBEAT_SECONDS", 10),
    "grace_seconds": env.seconds("RUNTIME_GRACE_SECONDS", 2),
    "outage_grace_seconds": env.seconds("RUNTIME_OUTAGE_GRACE_SECONDS", 10),
    "max_recoveries": env.integer("RUNTIME_MAX_RECOVERIES", 3),
    "max_wall_seconds": env.seconds("RUNTIME_MAX_WALL_SECONDS", 7 * 86_400),
    "slice_steps": env.integer("RUNTIME_SLICE_STEPS", 5000),
    "slice_seconds": env.seconds("RUNTIME_SLICE_SECONDS", 20),
    "busy_slice_seconds": env.seconds("RUNTIME_BUSY_SLICE_SECONDS", 1),
    "max_concurrent_tasks": env.integer("RUNTIME_MAX_CONCURRENT_TASKS", 0),
    "workflow_max_concurrent_tasks": env.counts("RUNTIME_WORKFLOW_MAX_CONCURRENT_TASKS"),
    "sweep_seconds": env.seconds("RUNTIME_SWEEP_SECONDS", 0.5),
    "outbox_retry_seconds": env.seconds("RUNTIME_OUTBOX_SWEEP_SECONDS", 5),
    "poll_claim": env.flag("RUNTIME_POLL_CLAIM"),
    "poll_seconds": env.seconds("RUNTIME_POLL_SECONDS", 0.2),
    "stream_heartbeat_seconds": env.seconds("RUNTIME_STREAM_HEARTBEAT_SECONDS", 5),
    "max_replayed_events": env.integer("RUNTIME_STREAM_REPLAY_MAX_EVENTS", 10000),
    "cancel_wait_seconds": env.seconds("RUNTIME_CANCEL_WAIT_SECONDS", 60),
    "checkpoint_every_steps": env.integer("RUNTIME_CHECKPOINT_EVERY_STEPS", 10),
    "checkpoint_max_seconds": env.seconds("RUNTIME_CHECKPOINT_MAX_SECONDS", 60),
    "artifact_root": Path(env.text("RUNTIME_ARTIFACT_ROOT", str(BASE_DIR / ".runtime/artifacts"))),
    "input_roots": env.paths("RUNTIME_INPUT_ROOTS"),
    "publish_roots": env.paths("RUNTIME_PUBLISH_ROOTS"),
    "publish_hosts": env.words("RUNTIME_PUBLISH_HOSTS"),
    "max_child_depth": env.integer("RUNTIME_MAX_CHILD_DEPTH", 5),
    "step_secrets": env.words("RUNTIME_STEP_SECRETS"),
    "default_assistant": env.text("RUNTIME_DEFAULT_ASSISTANT", "contracts.review"),
    "models": env.words("RUNTIME_MODELS"),
    "disconnect_grace_seconds": env.seconds("RUNTIME_DISCONNECT_GRACE_SECONDS", 3),
    "throttle": env.flag("RUNTIME_THROTTLE", default=PRODUCTION),
    "requests_per_minute": env.counts("RUNTIME_REQUESTS_PER_MINUTE", known=REQUEST_KINDS),
    "kept_answer_seconds": env.seconds("RUNTIME_KEPT_ANSWER_SECONDS", 30 * 86_400),
    "webhook_hosts": env.words("RUNTIME_WEBHOOK_HOSTS"),
    "webhook_private_hosts": env.words("RUNTIME_WEBHOOK_PRIVATE_HOSTS"),
    "webhook_timeout_seconds": env.seconds("RUNTIME_WEBHOOK_TIMEOUT_SECONDS", 10),
    "webhook_retry_seconds": env.seconds("RUNTIME_WEBHOOK_RETRY_SECONDS", 5),
    "webhook_give_up_seconds": env.seconds("RUNTIME_WEBHOOK_GIVE_UP_SECONDS", 3 * 86_400),
    "mcp_sync_wait_seconds": env.seconds("RUNTIME_MCP_SYNC_WAIT_SECONDS", 25),
    "mcp_result_seconds": env.seconds("RUNTIME_MCP_RESULT_SECONDS", 30 * 86_400),
    "test_assistant": env.flag("RUNTIME_TEST_ASSISTANT"),
    "public_schema": env.flag("RUNTIME_PUBLIC_SCHEMA"),
    "key_environment": "live" if PRODUCTION else "test",
}

# The project's version; a test compares it with pyproject.toml.
RELEASE = "0.1.0"

# The address by which MCP clients call this installation; tokens are issued for it.
MCP_RESOURCE_URL = env.text("MCP_RESOURCE_URL", "http://localhost:8000/mcp")
if not urlsplit(MCP_RESOURCE_URL).path.endswith("/mcp"):
    raise ImproperlyConfigured("MCP_RESOURCE_URL must end with /mcp")
MCP_META_PREFIX = env.text("MCP_META_PREFIX", "dev.perdure")
MCP_ALLOWED_ORIGINS = list(env.words("MCP_ALLOWED_ORIGINS"))
# "none" lets everybody in as MCP_USER: for a loopback of one's own only.
MCP_AUTH = env.text("MCP_AUTH", "credential")
MCP_USER = env.text("MCP_USER", "")
if MCP_AUTH not in {"credential", "none"} or (MCP_AUTH == "none" and PRODUCTION):
    raise ImproperlyConfigured("MCP_AUTH is credential, or none where DJANGO_ENV is no production")

# An issuer of your own whose tokens the MCP door takes, and where its keys are. The kinds of JSON
# Web Tokens (`typ`) that are access tokens there; an identity token is none.
MCP_JWT_ISSUER = env.text("MCP_JWT_ISSUER")
MCP_JWKS_URL = env.text("MCP_JWKS_URL")
MCP_JWT_TYPES = [kind.lower() for kind in env.words("MCP_JWT_TYPES", "at+jwt")]
if bool(MCP_JWT_ISSUER) != bool(MCP_JWKS_URL):
    raise ImproperlyConfigured("MCP_JWT_ISSUER and MCP_JWKS_URL are set together")
if PRODUCTION and MCP_JWKS_URL and not MCP_JWKS_URL.startswith("https://"):
    raise ImproperlyConfigured("MCP_JWKS_URL must begin with https://")

# The built-in authorization server: people let MCP clients in on a page of ours. Needs the extra
# `oauth`. Clients that name themselves by an address (https) may be of any host, or of these.
MCP_OAUTH = env.flag("MCP_OAUTH")
MCP_CLIENT_HOSTS = list(env.words("MCP_CLIENT_HOSTS", "*"))
MCP_TOKEN_SECONDS = env.integer("MCP_TOKEN_SECONDS", 3600)
MCP_REFRESH_SECONDS = env.integer("MCP_REFRESH_SECONDS", 30 * 86_400)
if MCP_OAUTH:
    if find_spec("oauth2_provider") is None:
        raise ImproperlyConfigured("MCP_OAUTH needs the packages of requirements/oauth.txt")
    if PRODUCTION and not MCP_RESOURCE_URL.startswith("https://"):
        raise ImproperlyConfigured("with MCP_OAUTH, MCP_RESOURCE_URL must begin with https://")
    INSTALLED_APPS.insert(INSTALLED_APPS.index("tasks_app.apps.TasksAppConfig"), "oauth2_provider")
OAUTH2_PROVIDER = {
    # The issuer is the origin of MCP_RESOURCE_URL, whatever host name a request came by.
    "OIDC_ISS_ENDPOINT": "{0.scheme}://{0.netloc}".format(urlsplit(MCP_RESOURCE_URL)),
    "SCOPES_BACKEND_CLASS": "tasks_app.oauth.scopes.CapabilityScopes",
    "OAUTH2_VALIDATOR_CLASS": "tasks_app.oauth.validator.Validator",
    "OAUTH2_RESPONSE_TYPES_SUPPORTED": ["code"],
    "OAUTH2_GRANT_TYPES_SUPPORTED": ["authorization_code", "refresh_token"],
    "OAUTH2_TOKEN_ENDPOINT_AUTH_METHODS_SUPPORTED": [
        "none",
        "client_secret_basic",
        "client_secret_post",
    ],
    "ACCESS_TOKEN_EXPIRE_SECONDS": MCP_TOKEN_SECONDS,
    "REFRESH_TOKEN_EXPIRE_SECONDS": MCP_REFRESH_SECONDS,
    "REFRESH_TOKEN_REUSE_PROTECTION": True,
    "PKCE_REQUIRED": True,
    # Programs on one's own machine take the answer at http://localhost or 127.0.0.1, any port;
    # the validator refuses http everywhere else.
    "ALLOWED_REDIRECT_URI_SCHEMES": ["https", "http"],
    "ALLOW_LOCALHOST_LOOPBACK": True,
    "CIMD_ENABLED": True,
    "CIMD_REGISTRATION_PERMISSION_CLASSES": ["oauth2_provider.cimd.HostAllowlistCIMDPermission"],
    "CIMD_ALLOWED_HOSTS": MCP_CLIENT_HOSTS,
    "COMPLIANT_BCP_RFC9700_IMPLICIT_GRANT": True,
    "COMPLIANT_BCP_RFC9700_PASSWORD_GRANT": True,
    "COMPLIANT_BCP_RFC9700_PKCE_METHOD": True,
    "COMPLIANT_BCP_RFC9700_PKCE_REQUIRED": True,
    "COMPLIANT_BCP_RFC9700_ACCESS_TOKEN_TRANSPORT": True,
    "COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS": True,
    "COMPLIANT_BCP_RFC9700_TOKEN_STORAGE": True,
    "COMPLIANT_BCP_RFC9700_REFRESH_TOKEN": True,
    "COMPLIANT_BCP_RFC9700_REDIRECT_URI_MATCHING": True,
}
# Said about "http" above, which this setting alone cannot limit to one's own machine.
SILENCED_SYSTEM_CHECKS = ["oauth2_provider.W008"]

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "runtime_project.logging.JsonFormatter"}},
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": "json"},
    },
    "root": {"handlers": ["console"], "level": env.text("RUNTIME_LOG_LEVEL", "INFO")},
}
