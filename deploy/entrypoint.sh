#!/bin/sh
# Reads secrets from files, then becomes one of the product's processes. No secret is printed.
set -eu

# For each NAME_FILE: NAME is the content of that file. Both set, or an unreadable file: refuse.
for name in DJANGO_SECRET_KEY DJANGO_SECRET_KEY_FALLBACKS DATABASE_URL REDIS_URL REDIS_BROKER_URL; do
    eval "file=\${${name}_FILE:-}"
    [ -n "$file" ] || continue
    eval "given=\${${name}:-}"
    if [ -n "$given" ]; then
        echo "entrypoint: set $name or ${name}_FILE, not both" >&2
        exit 64
    fi
    if [ ! -r "$file" ]; then
        echo "entrypoint: ${name}_FILE cannot be read by uid $(id -u)" >&2
        exit 66
    fi
    export "$name=$(cat "$file")"
    unset "${name}_FILE"
done

process="${1:-web}"
[ $# -eq 0 ] || shift
export RUNTIME_PROCESS="${RUNTIME_PROCESS:-$process}"

case "$process" in
    web)
        exec uvicorn runtime_project.asgi:application --host 0.0.0.0 --port 8000 \
            --lifespan on --no-server-header --no-access-log --timeout-graceful-shutdown 5 "$@"
        ;;
    worker)
        if [ "${RUNTIME_POLL_CLAIM:-0}" = 1 ]; then
            exec python manage.py work --processes "${WORKER_PROCESSES:-2}" "$@"
        fi
        exec celery -A runtime_project worker -Q slices -c "${WORKER_PROCESSES:-2}" -l INFO \
            -n "worker@%h" --without-gossip --without-mingle --without-heartbeat "$@"
        ;;
    sweep)
        exec python manage.py sweep "$@"
        ;;
    migrate)
        exec python manage.py migrate --no-input "$@"
        ;;
    manage)
        exec python manage.py "$@"
        ;;
    *)
        echo "entrypoint: web, worker, sweep, migrate or manage, not '$process'" >&2
        exit 64
        ;;
esac
