#!/usr/bin/env bash
# Installs Debian's podman and builds the images of the cluster tests in build/clusters: a Debian base
# in place of Python's image, the project's own, PostgreSQL with the interface of postgres:17, and a host with sshd.
# Run as root by `make test-clusters`. Builds use this machine's pip settings, local indexes included.
set -euo pipefail
cd "$(dirname "$0")/../.."
clusters=$PWD/build/clusters
mkdir -p "$clusters/bin"
export CONTAINERS_CONF=$clusters/containers.conf CONTAINERS_STORAGE_CONF=$clusters/storage.conf DEBIAN_FRONTEND=noninteractive

packages="podman runc netavark aardvark-dns catatonit iptables debootstrap openssh-client rsync"
# shellcheck disable=SC2086
dpkg --status $packages >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages; }
[ -x "$clusters/venv/bin/podman-compose" ] || { python3 -m venv "$clusters/venv" && "$clusters/venv/bin/pip" install -q podman-compose; }

{ echo '[global]'; pip config list | sed -n "s/^\(global\|:env:\)\.\([^=]*\)='\(.*\)'$/\2 = \3/p" | sort -u -t= -k1,1; } >"$clusters/pip.conf"
volumes="\"$clusters/pip.conf:/etc/pip.conf:ro\""
for path in $(grep -oE '/[^ ]+' "$clusters/pip.conf" | sed 's,^//,,; s,/simple$,,' | sort -u); do  # a local index's files lie beside it
    [ ! -e "$path" ] || volumes+=", \"$path:$path:ro\""
done
cat >"$CONTAINERS_CONF" <<END
[containers]
volumes = [$volumes]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
[network]
network_backend = "netavark"
END
printf '[storage]\ndriver = "overlay"\ngraphroot = "%s"\nrunroot = "/run/aiayn-clusters"\n' "$clusters/storage" >"$CONTAINERS_STORAGE_CONF"

# Runs the page's `docker compose` commands with podman.
cat >"$clusters/bin/docker" <<END
#!/bin/sh
shift
exec "$clusters/venv/bin/podman-compose" --podman-build-args "--isolation=chroot --network=host --build-arg BASE=localhost/base" "\$@"
END
chmod +x "$clusters/bin/docker"

if ! podman image exists base; then
    rm -rf "$clusters/base"
    debootstrap --variant=minbase --include=python3,python3-pip,python3-venv,python-is-python3,ca-certificates \
        "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$clusters/base"
    tar -C "$clusters/base" -c . | podman import -c 'ENV PIP_BREAK_SYSTEM_PACKAGES=1' - base
    rm -rf "$clusters/base"
fi
build() { podman build --isolation=chroot --network=host --build-arg BASE=localhost/base "$@"; }
build --file infra/Dockerfile --tag aiayn:0.1.0 .
build --target postgres --tag docker.io/library/postgres:17 tests/infra
build --target host --tag host tests/infra
touch "$clusters/ready"
