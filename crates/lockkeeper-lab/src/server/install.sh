policy=/usr/sbin/policy-rc.d
cluster=/etc/postgresql-common/createcluster.d/lockkeeper.conf

made=
trap 'rm -f $made; rmdir -p --ignore-fail-on-non-empty "${cluster%/*}" 2>/dev/null' EXIT
trap 'exit 1' HUP INT TERM

# A policy that is there already is somebody's decision.
if [ ! -e "$policy" ]; then
    made=$policy
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" || exit 1
fi
if [ ! -e "$cluster" ]; then
    made="$made $cluster"
    mkdir -p "${cluster%/*}" && echo 'create_main_cluster = false' >"$cluster" || exit 1
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update -q || echo 'the list of packages could not be renewed; trying with the old one'
apt-get install -y -q --no-install-recommends "$@"
