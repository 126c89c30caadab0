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

# Install packages that only the tests need, without their services: the tests start these programs themselves. Debian
# starts a service when its package is installed and at each boot. Then RabbitMQ would accept connections from other
# machines, and irqbalance would move the interrupts of this one. Packages that are installed already stay as they are.
install_for_tests() (
    policy=/usr/sbin/policy-rc.d # it permits or forbids that a package starts a service; see invoke-rc.d(8)
    if [ ! -e "$policy" ]; then
        trap '$SUDO rm -f "$policy"' EXIT
        trap 'exit 1' HUP INT TERM
        $SUDO sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy"
    fi
    install "$@"
    for service in irqbalance openvswitch-switch rabbitmq-server; do
        case " $* " in
        *" $service "*) $SUDO systemctl --quiet disable "$service" 2>/dev/null || $SUDO update-rc.d "$service" disable ;;
        esac
    done
)

"$PYTHON" -c 'import ensurepip' 2>/dev/null || install python3-venv
if [ ! -x .venv/bin/pip ]; then
    say "Creating .venv"
    "$PYTHON" -m venv .venv
fi
.venv/bin/pip install -q -c constraints.txt bindep
needed=$(.venv/bin/bindep -b || true)
# shellcheck disable=SC2086 # one word a package
[ -z "$needed" ] || install $needed
missing=$(.venv/bin/bindep -b test || true)
case "$missing" in
*postgresql*)
    # The tests start servers of their own. Debian's package would make a cluster, and start its server.
    install postgresql-common
    $SUDO sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
    ;;
esac
# shellcheck disable=SC2086 # one word a package
[ -z "$missing" ] || install_for_tests $missing

say "Installing Python packages into .venv"
.venv/bin/pip install -q -c constraints.txt -e '.[test,lint,nova,optimal]'
touch .venv/.ready
