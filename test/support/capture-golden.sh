#!/usr/bin/env bash
# Captures the golden packets in test/golden/ from the kernel's own VXLAN device: two network namespaces, a veth pair as
# the underlay that lets nobody else finish a checksum or merge a frame, and one pod-less host on each side.
# Needs iproute2, ethtool, tcpdump, iputils-ping and netcat-openbsd.
# Run by hand, as root, when a frame is to be added: bash test/support/capture-golden.sh
set -euo pipefail
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

A=flx-golden-a
B=flx-golden-b
PORT=8472
LINK='ip link add flannel.1 type vxlan id 1 dstport 8472 local 192.168.56.1N dev eth0 nolearning MODE; MTU 1450, the rest as flannel sets it'
UNDERLAY='veth in two network namespaces; ethtool -K eth0 tx off gro off on both ends'
WORK=$(mktemp -d)

cleanup() {
  local job
  for job in $(jobs -p); do kill "$job" 2>/dev/null || true; done
  ip netns del $A 2>/dev/null || true
  ip netns del $B 2>/dev/null || true
  rm -rf "$WORK"
}
trap cleanup EXIT

in_a() { ip netns exec $A "$@"; }
in_b() { ip netns exec $B "$@"; }

make_hosts() {
  ip netns add $A
  ip netns add $B
  ip link add eth0 netns $A address 0a:00:00:00:00:0a type veth peer name eth0 netns $B address 0a:00:00:00:00:0b
  local n=0 netns
  for netns in $A $B; do
    n=$((n + 1))
    ip netns exec $netns sysctl -qw net.ipv6.conf.all.disable_ipv6=1
    ip -n $netns link set lo up
    ip -n $netns addr add 192.168.56.1$n/24 dev eth0
    ip netns exec $netns ethtool -K eth0 tx off gro off >/dev/null 2>&1
    ip -n $netns link set eth0 up
  done
}

make_vteps() { # udpcsum | noudpcsum
  local n netns other
  for n in 1 2; do
    other=$((3 - n))
    [ $n = 1 ] && netns=$A || netns=$B
    ip -n $netns link del flannel.1 2>/dev/null || true
    ip -n $netns link add flannel.1 address 0e:5a:00:00:00:0$n mtu 1450 type vxlan id 1 dstport $PORT \
      local 192.168.56.1$n dev eth0 nolearning "$1"
    ip -n $netns addr add 10.244.$n.0/32 dev flannel.1
    ip -n $netns link set flannel.1 up
    ip -n $netns neigh add 10.244.$other.0 lladdr 0e:5a:00:00:00:0$other dev flannel.1 nud permanent
    bridge -n $netns fdb add 0e:5a:00:00:00:0$other dev flannel.1 dst 192.168.56.1$other
    ip -n $netns route add 10.244.$other.0/24 via 10.244.$other.0 dev flannel.1 onlink
  done
}

traffic() {
  in_a ping -q -c 1 -W 2 10.244.2.0
  in_a ping -q -c 1 -W 2 -Q 0x01 10.244.2.0
  in_a ping -q -c 1 -W 2 -Q 0x02 10.244.2.0
  in_a ping -q -c 1 -W 2 -Q 0x03 10.244.2.0
  in_a ping -q -c 1 -W 2 -R 10.244.2.0
  ip netns exec $B nc -l 10.244.2.0 5001 >/dev/null &
  local server=$!
  until in_b ss -Hltn 'sport = 5001' | grep -q 5001; do sleep 0.1; done
  printf 'twenty-six bytes of a pod\n' | in_a nc -N 10.244.2.0 5001
  wait $server
  in_a bash -c "printf 'nobody listens here' >/dev/udp/10.244.2.0/5002"
  in_a bash -c "head -c 3000 /dev/zero | tr '\0' x >/dev/udp/10.244.2.0/5003"
  sleep 0.5
}

# The n-th captured frame that a filter picks, as hex digits. Offsets count from the outer UDP header: the inner IPv4
# header starts at 30, what it carries at 50.
frame() { # filter
  tcpdump -r "$WORK/capture.pcap" -n -xx "udp dst port $PORT and $1" 2>/dev/null |
    awk '/^[0-9][0-9]:/ { packets++ } packets == 1 && /^[\t ]+0x/ { sub(/^[^:]*:/, ""); gsub(/[ \t]/, ""); printf "%s", $0 }'
}

FRAMES='icmp-echo-request|udp[39] = 1 and udp[50] = 8 and udp[31] = 0|ping -c 1 10.244.2.0
icmp-echo-reply|udp[39] = 1 and udp[50] = 0 and udp[31] = 0|the answer to it
inner-ect-1|udp[39] = 1 and udp[50] = 8 and udp[31] = 1|ping -c 1 -Q 0x01 10.244.2.0
inner-ect-0|udp[39] = 1 and udp[50] = 8 and udp[31] = 2|ping -c 1 -Q 0x02 10.244.2.0
inner-ce|udp[39] = 1 and udp[50] = 8 and udp[31] = 3|ping -c 1 -Q 0x03 10.244.2.0
ipv4-options|udp[30] = 0x4f and udp[46:4] = 0x0af40200|ping -c 1 -R 10.244.2.0
tcp-syn|udp[39] = 6 and udp[63] = 2|nc -N 10.244.2.0 5001
tcp-syn-ack|udp[39] = 6 and udp[63] = 0x12|the answer to it
tcp-data|udp[39] = 6 and udp[63] = 0x18|a line written to that nc
udp|udp[39] = 17 and udp[52:2] = 5002|a line written to /dev/udp/10.244.2.0/5002
icmp-port-unreachable|udp[39] = 1 and udp[50] = 3|the answer to it, nobody listening
udp-first-fragment|udp[39] = 17 and udp[36:2] = 0x2000|3000 bytes written to /dev/udp/10.244.2.0/5003
udp-middle-fragment|udp[39] = 17 and udp[36:2] & 0x3fff > 0x2000|the same
udp-last-fragment|udp[39] = 17 and udp[36:2] > 0 and udp[36:2] & 0x3000 = 0 and udp[36:2] < 0x2000|the same'

write_json() { # udpcsum | noudpcsum
  local name filter how hex comma=''
  printf '{\n  "provenance": {\n'
  printf '    "kernel": "%s",\n' "$(uname -sr)"
  printf '    "captured": "%s, tcpdump on one eth0, by test/support/capture-golden.sh",\n' "$(date -u +%F)"
  printf '    "link": "%s",\n    "underlay": "%s"\n  },\n  "frames": [\n' "${LINK/MODE/$1}" "$UNDERLAY"
  while IFS='|' read -r name filter how; do
    hex=$(frame "$filter")
    [ -n "$hex" ] || { echo "capture-golden: no frame for $name" >&2; exit 1; }
    printf '%s    { "name": "%s", "made": "%s", "hex": "%s" }' "$comma" "$name" "$how" "$hex"
    comma=$',\n'
  done <<<"$FRAMES"
  printf '\n  ]\n}\n'
}

capture() { # udpcsum | noudpcsum
  make_vteps "$1"
  ip netns exec $B tcpdump --immediate-mode -i eth0 -w "$WORK/capture.pcap" -U "udp port $PORT" 2>"$WORK/tcpdump.log" &
  local tcpdump=$!
  until grep -q 'listening on' "$WORK/tcpdump.log"; do sleep 0.1; done
  traffic >"$WORK/traffic.log" 2>&1
  kill -TERM $tcpdump
  wait $tcpdump || true
  write_json "$1" >"test/golden/vxlan-$1.json"
}

make_hosts
capture udpcsum
capture noudpcsum
npx biome format --write test/golden >/dev/null
