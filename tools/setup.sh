#!/bin/sh
# Sets up .venv and the Debian packages of bindep.txt for pinner and its demo. `setup.sh test` adds what the tests need,
# `setup.sh lint` what `make lint` needs. Safe to run again: it installs only what is missing.
set -eu
cd "$(dirname "$0")/.."
PART=${1:-demo}
PYTHON=${PYTHON:-/usr/bin/python3}
SUDO=$([ "$(id -u)" = 0 ] || echo sudo)
LOG=$(mktemp)
trap 'rm -f "$LOG"' EXIT
trap 'exit 1' HUP INT TERM

say() { printf '\033[1m== %s\033[0m\n' "$*"; }

die() {
    echo "setup: $*" >&2
    exit 1
}

# Run a command; show its output only if it fails. $1 is the remedy if the log has a sign of a missing network ($2).
quietly() {
    remedy=$1 offline=$2
    shift 2
    "$@" >"$LOG" 2>&1 && return
    if grep -qE "$offline" "$LOG"; then die "$remedy"; fi
    cat "$LOG" >&2
    die "failed: $*"
}

# End the setup before anything is downloaded if these Debian packages cannot be installed here.
check_can_install() {
    by_hand="as root: apt-get install --no-install-recommends $*"
    command -v apt-get >/dev/null || die "apt-get is missing; install with your system's tool: $*"
    [ -z "$SUDO" ] || command -v sudo >/dev/null || die "needs root or sudo to install packages; $by_hand"
    [ -z "$SUDO" ] || sudo -n true 2>/dev/null || { [ -t 0 ] && sudo true; } ||
        die "sudo gives you no right to install packages; $by_hand"
}

install() {
    say "Installing Debian packages: $*"
    # Without a network apt-get update warns, and the installation fails. dpkg writes hundreds of lines.
    quietly "apt-get reaches no archive of Debian: give it a network, or a mirror in /etc/apt/sources.list.d" \
        'Temporary failure resolving|Could not (resolve|connect)|Unable to (fetch|locate|connect)' \
        $SUDO sh -c 'export DEBIAN_FRONTEND=noninteractive
            apt-get update -qq && exec apt-get install -y -qq --no-install-recommends "$@"' sh "$@"
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
    case " $* " in
    *" postgresql "*)
        # The tests start servers of their own. Debian's package would make a cluster, and start its server.
        install postgresql-common
        $SUDO sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
        ;;
    esac
    install "$@"
    for service in irqbalance openvswitch-switch rabbitmq-server; do
        case " $* " in
        *" $service "*) $SUDO systemctl --quiet disable "$service" 2>/dev/null || $SUDO update-rc.d "$service" disable ;;
        esac
    done
)

# Install Python packages into .venv, in the versions of constraints.txt.
pip_install() {
    quietly "pip reaches no package index: give it a network, a proxy (https_proxy) or a mirror (PIP_INDEX_URL)" \
        'Retry\(total=0|Max retries exceeded|Read timed out|\(from versions: none\)' \
        .venv/bin/pip install -q -c constraints.txt "$@"
}

# Print the packages that pinner requires, without those that compile against Debian's packages.
wheels() {
    sed -n '/^install_requires/,/^\[/s/^    //p' setup.cfg | grep -vE '^(libvirt-python|rrdtool-bindings)' | tr -d ' '
}

command -v dpkg-query >/dev/null || die "needs Debian: docs/install.md says what pinner needs elsewhere"
if ! "$PYTHON" -c 'import ensurepip' 2>/dev/null; then
    [ "$PYTHON" = /usr/bin/python3 ] || die "$PYTHON has no ensurepip; choose another interpreter with PYTHON="
    # Root learns at once of all packages that bindep will miss.
    # shellcheck disable=SC2046 # one word a package
    check_can_install $(sed -nE "s/ \[platform:dpkg( $PART)?\]$//p" bindep.txt)
    install python3-venv
fi
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$PYTHON is $("$PYTHON" -V); choose Python 3.11 or later with PYTHON="
# After an upgrade of Debian, the packages in .venv are those of another Python.
if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    say "Creating .venv"
    "$PYTHON" -m venv --clear .venv
fi

# Python packages come first: where they cannot be had, no Debian package has been installed yet.
pip_install bindep
needed=$(.venv/bin/bindep -b || true)
for_tests=
[ "$PART" != test ] || for_tests=$(.venv/bin/bindep -b test | grep -vxF "${needed:-none}" || true)
# shellcheck disable=SC2086 # one word a package
[ -z "$needed$for_tests" ] || check_can_install $needed $for_tests
say "Installing Python packages into .venv"
# shellcheck disable=SC2046
pip_install $(wheels)
# shellcheck disable=SC2086
[ -z "$needed" ] || install $needed
# shellcheck disable=SC2086
[ -z "$for_tests" ] || install_for_tests $for_tests

# rrdtool-bindings has the module of rrdtool, which was required before: the removal of one removes the other's file.
[ ! -e "$(echo .venv/lib/python3*/site-packages/rrdtool-*.dist-info)" ] || .venv/bin/pip uninstall -q -y rrdtool
case $PART in
demo) pip_install -e . ;;
test) pip_install -e '.[test,nova,optimal]' ;;
lint) pip_install -e '.[lint]' ;;
esac
touch .venv/.ready ".venv/.ready-$PART"
