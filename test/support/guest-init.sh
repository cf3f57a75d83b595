#!/usr/bin/env bash
# Process 1 of the guest that test/support/uml-guest.ts boots. Its root is the machine's own file tree, read-only; what
# is to be written goes to /run, which is memory. The variables come from the kernel's command line.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export TMPDIR=/run
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
# Where nothing looks on its own: the kernel gets the modules that are named, and loads none by itself.
mkdir -p /run/modules/lib
ln -s /usr/lib/uml/modules /run/modules/lib/modules
modprobe -d /run/modules tun
ip link set lo up
# shellcheck disable=SC2154 — the names below stand on the kernel's command line
ip address add "$guest_control" dev vec1
ip address add "$guest_underlay" dev vec0
ip link set vec1 up
ip link set vec0 up
"$guest_node" "$guest_agent" "${guest_control%/*}"
echo o >/proc/sysrq-trigger
sleep 60
