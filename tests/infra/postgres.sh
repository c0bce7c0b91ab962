# Debian's PostgreSQL with the variables and the data folder of the image postgres:17.
set -euo pipefail
cd /var/lib/postgresql
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
as_postgres() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }
chown postgres data
if [ ! -s data/PG_VERSION ]; then
    as_postgres initdb -D data --username="$POSTGRES_USER" --auth-local=trust
    printf "CREATE DATABASE %s\nALTER USER %s PASSWORD '%s'\n" "$POSTGRES_USER" "$POSTGRES_USER" "$POSTGRES_PASSWORD" |
        as_postgres postgres --single -D data postgres
    echo "host all all all scram-sha-256" >>data/pg_hba.conf
fi
exec setpriv --reuid=postgres --regid=postgres --init-groups postgres -D data -c "listen_addresses=*"
