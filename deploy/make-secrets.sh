#!/bin/sh
# Makes every secret that compose.yaml names, once. Existing files are never replaced.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets
chmod 700 secrets

random() { head -c "$1" /dev/urandom | od -An -tx1 | tr -d ' \n'; }

# Writes standard input to a file that does not exist yet. The folder keeps others out; the files
# themselves are readable, since each container reads them as a user of its own.
keep() {
    if [ -e "secrets/$1" ]; then
        cat > /dev/null
        echo "kept     secrets/$1"
        return
    fi
    cat > "secrets/$1.new"
    chmod 444 "secrets/$1.new"
    mv "secrets/$1.new" "secrets/$1"
    echo "made     secrets/$1"
}

random 48 | keep django_secret_key
for name in postgres owner web worker redis; do
    random 24 | keep "${name}_password"
done
database() { printf 'postgresql://%s:%s@postgres:5432/runtime' "$1" "$(cat "secrets/$2_password")"; }
database runtime owner | keep database_url_owner
database rt_web web | keep database_url_web
database rt_worker worker | keep database_url_worker
printf 'redis://:%s@redis:6379/0' "$(cat secrets/redis_password)" | keep redis_url
{
    printf 'requirepass %s\n' "$(cat secrets/redis_password)"
    printf 'dir /data\nappendonly yes\nappendfsync everysec\nsave ""\n'
    printf 'maxmemory 384mb\nmaxmemory-policy noeviction\n'
} | keep redis_conf
