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
# shellcheck disable=SC2086 # one word a package
[ -z "$missing" ] || install $missing
# The tests start servers of their own; the broker that Debian's package starts accepts connections from other machines.
for service in postgresql rabbitmq-server; do
    case "$missing" in
    *$service*)
        if [ -d /run/systemd/system ]; then
            $SUDO systemctl --quiet disable --now "$service"
        else
            $SUDO service "$service" stop >/dev/null || true
        fi
        ;;
    esac
done

say "Installing Python packages into .venv"
.venv/bin/pip install -q -c constraints.txt -e '.[test,lint,nova]'
touch .venv/.ready
