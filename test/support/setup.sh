#!/usr/bin/env bash
# Makes a fresh Debian ready: Debian packages, npm packages, build. First step of `npm run demo` (mode demo), of
# `npm test` and `npm run bench` (mode test) and of `npm run test:uml` (mode uml: as test, and insists on user-mode
# Linux). Depends on nothing but bash, coreutils and Node; quick when nothing is lacking.
set -euo pipefail

MODE=${1:-}
NEED_NODE='20.19.0'
# command:Debian package that brings it; the names are the same in Debian 12 and 13
DEMO_COMMANDS='ip:iproute2 bridge:iproute2 ping:iputils-ping iperf3:iperf3 nft:nftables ethtool:ethtool'
TEST_COMMANDS="$DEMO_COMMANDS tshark:tshark tcpdump:tcpdump iptables:iptables etcd:etcd-server"
# Debian has user-mode Linux for this machine only; elsewhere its tests are left out, with that reason.
UML_COMMANDS='linux.uml:user-mode-linux modprobe:kmod'
UML_MACHINE='x86_64'

# PATH of a plain root shell may lack the folders in which ip, nft and ethtool live.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

fail() { # message, remedy
  printf 'setup: %s; %s\n' "$1" "$2" >&2
  exit 1
}
say() { printf 'setup: %s\n' "$*" >&2; }

check_machine() {
  [ "$(uname -s)" = Linux ] || fail "this is $(uname -s), and flannelette runs on Linux only" 'use a Debian 12 or 13 machine'
  [ "$(id -u)" = 0 ] || fail 'not root' "run it as root: sudo npm run ${npm_lifecycle_event:-$MODE}"
  command -v node >/dev/null || fail 'no node in PATH' "install Node $NEED_NODE or newer"
  local found
  found=$(node -p process.versions.node)
  if [ "$(printf '%s\n%s\n' "$NEED_NODE" "$found" | sort -V | head -n 1)" != "$NEED_NODE" ]; then
    fail "Node $found is too old" "install Node $NEED_NODE or newer"
  fi
  [ -c /dev/net/tun ] || fail 'no /dev/net/tun' \
    'modprobe tun; or mkdir -p /dev/net && mknod /dev/net/tun c 10 200; or start the container with --device /dev/net/tun'
  unshare --net true 2>/dev/null || fail 'no network namespace can be made' \
    'start the container with --cap-add NET_ADMIN --cap-add SYS_ADMIN, or --privileged'
}

missing_packages() { # pairs… → the packages of those commands that are not there, once each
  local pair
  for pair in "$@"; do
    command -v "${pair%%:*}" >/dev/null || printf '%s\n' "${pair##*:}"
  done | sort -u | tr '\n' ' '
}

install_packages() { # pairs…
  local packages guard='' answer
  packages=$(missing_packages "$@")
  [ -n "$packages" ] || return 0
  command -v apt-get >/dev/null || fail "missing: $packages(Debian package names), and there is no apt-get" \
    'install them with your own package tool'
  say "installing Debian packages: $packages"
  # Some packages start a service when they are installed; a test machine asked for no service.
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    guard=/usr/sbin/policy-rc.d
    printf '#!/bin/sh\nexit 101\n' >"$guard"
    chmod 755 "$guard"
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  answer=0
  apt_install "$packages" || answer=$?
  [ -z "$guard" ] || rm -f "$guard"
  trap - EXIT
  [ "$answer" = 0 ] || fail "apt-get could not install $packages" 'see its words above; is there a network?'
  packages=$(missing_packages "$@")
  [ -z "$packages" ] || fail "commands of $packages are still missing" "look at: dpkg -L $packages"
}

apt_install() { # packages, in one word
  local log
  log=$(mktemp)
  # shellcheck disable=SC2086 — the list is split on purpose
  if ! { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $1; } \
    </dev/null >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

modules_complete() { # what is installed is what the lock file names, and koffi loads its machine code
  node --input-type=commonjs -e '
    const want = JSON.parse(fs.readFileSync("package-lock.json")).packages
    const have = JSON.parse(fs.readFileSync("node_modules/.package-lock.json")).packages
    for (const [path, { version, optional }] of Object.entries(want)) {
      if (path !== "" && !optional && have[path]?.version !== version) process.exit(1)
    }
    require("koffi")
  ' 2>/dev/null
}

install_modules() {
  modules_complete && return 0
  say 'installing npm packages'
  # koffi's machine code is an optional dependency of koffi: never leave those out.
  npm ci --include=dev --include=optional --no-audit --no-fund --loglevel=error </dev/null >&2 ||
    fail 'npm ci failed' 'see its words above; is there a network?'
  modules_complete || fail "the npm packages do not work here (koffi, $(uname -m))" \
    'use an x86-64 or arm64 machine with glibc, and no omit=optional in the npm configuration'
}

has_raw_socket() { # the optional package is there, and its machine code loads
  node --input-type=commonjs -e 'require("raw-socket")' 2>/dev/null
}

try_raw_socket() { # where it cannot be built, the tests of the raw driver are left out, with that reason
  local tool refused=node_modules/.raw-socket-refused
  if has_raw_socket || [ -e "$refused" ]; then return 0; fi
  for tool in python3 make g++; do
    if ! command -v "$tool" >/dev/null; then
      say "no $tool: raw-socket is not built, and the tests of the raw driver are left out"
      return 0
    fi
  done
  say 'building raw-socket'
  # Not npm ci, which would take everything away first.
  npm install --no-save --include=dev --include=optional --no-audit --no-fund --loglevel=error </dev/null >&2 || true
  has_raw_socket && return 0
  touch "$refused"
  say 'raw-socket could not be built: the tests of the raw driver are left out'
}

fingerprint() { # changes with every source file that the build reads; what the build itself writes is left out
  find src dataplane bench package.json package-lock.json tsconfig.json -type f ! -name '*.generated.ts' \
    -printf '%p %s %T@\n' | sort | sha256sum
}

build() {
  local now
  now=$(fingerprint)
  [ "$(cat dist/.fingerprint 2>/dev/null)" != "$now" ] || return 0
  say 'building'
  npm run --silent build </dev/null >&2 || fail 'the build failed' 'see the words of the compiler above'
  mkdir -p dist
  printf '%s\n' "$now" >dist/.fingerprint
}

case $MODE in
  demo) commands=$DEMO_COMMANDS ;;
  test | uml) commands=$TEST_COMMANDS ;;
  *) fail "unknown mode '$MODE'" 'use: setup.sh demo | test | uml' ;;
esac
if [ "$(uname -m)" = "$UML_MACHINE" ]; then
  [ "$MODE" = demo ] || commands="$commands $UML_COMMANDS"
elif [ "$MODE" = uml ]; then
  fail "Debian has no user-mode Linux for $(uname -m)" "use an $UML_MACHINE machine"
fi
check_machine
# One at a time in one tree: two runs started together must not install into each other's folders.
exec 9<package.json
flock 9
# shellcheck disable=SC2086 — the list is split on purpose
install_packages $commands
install_modules
[ "$MODE" = demo ] || try_raw_socket
build
