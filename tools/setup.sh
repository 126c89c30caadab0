#!/bin/sh
# Sets up .venv and the Debian packages of bindep.txt. Safe to run again: it installs only what is missing.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-/usr/bin/python3}
SUDO=$([ "$(id -u)" = 0 ] || echo sudo)

say() { printf '\033[1m== %s\033[0m\n' "$*"; }

install() {
    say "Installing Debian packages: $*"
    log=$(mktemp)
    # dpkg writes hundreds of lines, which matter only where it fails.
    if ! { $SUDO apt-get update -qq &&
        $SUDO env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >"$log" 2>&1; then
        cat "$log" >&2
        exit 1
    fi
    rm "$log"
}

"$PYTHON" -c 'import ensurepip' 2>/dev/null || install python3-venv
if [ ! -x .venv/bin/pip ]; then
    say "Creating .venv"
    "$PYTHON" -m venv .venv
fi
.venv/bin/pip install -q -c constraints.txt bindep
missing=$(.venv/bin/bindep -b test || true)
case "$missing" in
*postgresql*)
    # The tests start servers of their own. Debian's package would make a cluster, and start its server.
    install postgresql-common
    $SUDO sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
    ;;
esac
# shellcheck disable=SC2086 # one word a package
[ -z "$missing" ] || install $missing
case "$missing" in
*rabbitmq-server*)
    # The tests start their own broker; the one that Debian's package starts accepts connections from other machines.
    if [ -d /run/systemd/system ]; then
        $SUDO systemctl --quiet disable --now rabbitmq-server
    else
        $SUDO service rabbitmq-server stop >/dev/null || true
    fi
    ;;
esac

say "Installing Python packages into .venv"
.venv/bin/pip install -q -c constraints.txt -e '.[test,lint,nova,optimal]'
touch .venv/.ready
