#!/usr/bin/env bash
# Captures the golden packets in test/golden/ from the kernel's own VXLAN device: two network namespaces, a veth pair as
# the underlay that lets nobody else finish a checksum or merge a frame, and one pod-less host on each side.
# Needs iproute2, ethtool, tcpdump, iputils-ping, netcat-openbsd and python3.
# Run by hand, as root, when a frame is to be added: bash test/support/capture-golden.sh [FILE...], by default all of
# vxlan-udpcsum, vxlan-noudpcsum and vxlan-ipv6 (IPv6 inside, with outer checksums).
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

# IPv6 inside: addresses fd00:10:244:N::, the peer's MAC known, and multicast sent to the peer as well, so that the kernel's
# own questions (neighbour and router discovery, multicast listeners) are seen on the underlay.
add_ipv6() {
  local n netns other
  for n in 1 2; do
    other=$((3 - n))
    [ $n = 1 ] && netns=$A || netns=$B
    bridge -n $netns fdb append 00:00:00:00:00:00 dev flannel.1 dst 192.168.56.1$other
    ip netns exec $netns sysctl -qw net.ipv6.conf.flannel/1.disable_ipv6=0
    ip -n $netns addr add fd00:10:244:$n::/64 dev flannel.1 nodad
    ip -n $netns neigh add fd00:10:244:$other:: lladdr 0e:5a:00:00:00:0$other dev flannel.1 nud permanent
    ip -n $netns route add fd00:10:244:$other::/64 via fd00:10:244:$other:: dev flannel.1 onlink
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

# A datagram from a socket with an IPV6_DSTOPTS header: one option, six bytes of padding (RFC 3542).
send_with_options() { # address port
  in_a python3 -c '
import socket, sys
IPV6_DSTOPTS = 59
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
    sender.setsockopt(socket.IPPROTO_IPV6, IPV6_DSTOPTS, bytes([0, 0, 1, 4, 0, 0, 0, 0]))
    sender.sendto(b"behind destination options", (sys.argv[1], int(sys.argv[2])))
' "$1" "$2"
}

traffic6() {
  in_a ping -6 -q -c 1 -W 2 fd00:10:244:2::
  in_a ping -6 -q -c 1 -W 2 -Q 0x03 fd00:10:244:2::
  ip netns exec $B nc -l fd00:10:244:2:: 5001 >/dev/null &
  local server=$!
  until in_b ss -Hltn 'sport = 5001' | grep -q 5001; do sleep 0.1; done
  printf 'twenty-six bytes of a pod\n' | in_a nc -N fd00:10:244:2:: 5001
  wait $server
  in_a bash -c "printf 'nobody listens here' >/dev/udp/fd00:10:244:2::/5002"
  in_a bash -c "head -c 3000 /dev/zero | tr '\0' x >/dev/udp/fd00:10:244:2::/5003"
  send_with_options fd00:10:244:2:: 5004
  in_a ping -6 -q -c 1 -W 1 fd00:10:244:1::99 || true # on the link, and nobody: asked for, never answered
  sleep 0.5
}

# The first captured frame that a filter picks, as hex digits. Offsets count from the outer UDP header: the inner IPv4
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

# With IPv6 inside, what the fixed header announces is at 36, what follows it at 70.
FRAMES6='icmpv6-echo-request|udp[36] = 58 and udp[70] = 128 and udp[30:2] & 0xff0 = 0|ping -6 -c 1 fd00:10:244:2::
icmpv6-echo-reply|udp[36] = 58 and udp[70] = 129 and udp[30:2] & 0xff0 = 0|the answer to it
inner-ce|udp[36] = 58 and udp[70] = 128 and udp[30:2] & 0xff0 = 0x30|ping -6 -c 1 -Q 0x03 fd00:10:244:2::
tcp-syn|udp[36] = 6 and udp[83] = 2|nc -N fd00:10:244:2:: 5001
tcp-data|udp[36] = 6 and udp[83] = 0x18|a line written to that nc
udp|udp[36] = 17 and udp[72:2] = 5002|a line written to /dev/udp/fd00:10:244:2::/5002
icmpv6-port-unreachable|udp[36] = 58 and udp[70] = 1|the answer to it, nobody listening
udp-first-fragment|udp[36] = 44 and udp[72:2] = 1|3000 bytes written to /dev/udp/fd00:10:244:2::/5003
udp-last-fragment|udp[36] = 44 and udp[72:2] & 1 = 0|the same
destination-options|udp[36] = 60|a datagram from a socket with IPV6_DSTOPTS: PadN of 6 bytes
hop-by-hop|udp[36] = 0|the report of the multicast groups that the host listens to
neighbour-solicitation|udp[36] = 58 and udp[70] = 135|ping -6 -c 1 fd00:10:244:1::99, an address that nobody has
router-solicitation|udp[36] = 58 and udp[70] = 133|the host looks for a router'

write_json() { # udpcsum | noudpcsum, frames
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
  done <<<"$2"
  printf '\n  ]\n}\n'
}

capture() { # FILE
  local mode=udpcsum inside=4
  case $1 in
    vxlan-udpcsum) ;;
    vxlan-noudpcsum) mode=noudpcsum ;;
    vxlan-ipv6) inside=6 ;;
    *) echo "capture-golden: no file $1" >&2; exit 2 ;;
  esac
  make_vteps $mode
  ip netns exec $B tcpdump --immediate-mode -i eth0 -w "$WORK/capture.pcap" -U "udp port $PORT" 2>"$WORK/tcpdump.log" &
  local tcpdump=$!
  until grep -q 'listening on' "$WORK/tcpdump.log"; do sleep 0.1; done
  if [ $inside = 4 ]; then
    traffic >"$WORK/traffic.log" 2>&1
  else
    add_ipv6
    traffic6 >"$WORK/traffic.log" 2>&1
  fi
  kill -TERM $tcpdump
  wait $tcpdump || true
  if [ $inside = 4 ]; then write_json $mode "$FRAMES"; else write_json $mode "$FRAMES6"; fi >"$WORK/frames.json"
  mv "$WORK/frames.json" "test/golden/$1.json"
}

make_hosts
[ $# -gt 0 ] || set -- vxlan-udpcsum vxlan-noudpcsum vxlan-ipv6
for file in "$@"; do capture "$file"; done
npx biome format --write test/golden >/dev/null
