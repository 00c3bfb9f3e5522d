#!/bin/sh
# Runs once, when the database's volume is empty: one owner for migrations, one login for each kind
# of process. Neither is a superuser; what each may do with which table, the migrations grant.
set -eu
secrets="${SECRETS:-/run/secrets}"

# The passwords travel as variables of psql and are quoted there.
psql -v ON_ERROR_STOP=1 --no-psqlrc -U postgres -d postgres \
    -v owner="$(cat $secrets/owner_password)" \
    -v web="$(cat $secrets/web_password)" \
    -v worker="$(cat $secrets/worker_password)" <<'SQL'
CREATE ROLE runtime LOGIN PASSWORD :'owner';
CREATE ROLE rt_web LOGIN PASSWORD :'web';
CREATE ROLE rt_worker LOGIN PASSWORD :'worker';
CREATE ROLE rt_readonly NOLOGIN;
CREATE DATABASE runtime OWNER runtime ENCODING 'UTF8' TEMPLATE template0;
REVOKE ALL ON DATABASE runtime FROM PUBLIC;
GRANT CONNECT ON DATABASE runtime TO rt_web, rt_worker, rt_readonly;
-- A forgotten open transaction would keep old row versions alive everywhere.
ALTER ROLE rt_web SET statement_timeout = '15s';
ALTER ROLE rt_worker SET statement_timeout = '60s';
ALTER ROLE rt_web SET idle_in_transaction_session_timeout = '15s';
ALTER ROLE rt_worker SET idle_in_transaction_session_timeout = '15s';
SQL
