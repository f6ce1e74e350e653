#!/usr/bin/env bash
# machine.sh FOLDER KIND: makes the namespaces that it starts in look like a machine, and stays as their first process.
# A node has folders that no other machine sees. The user's machine and the switch see the files of this one.
set -euo pipefail
folder=$1 kind=$2 name=${1##*/}
ssh_server=$(dirname "${BASH_SOURCE[0]}")/../../.venv/openssh # unpacked by scripts/test; absent if this machine has its own

# What is written to these folders stays in the machine.
mount --make-rprivate /
mount -t tmpfs -o mode=755 scratch "$folder/scratch"
private=(etc)
[[ $kind != node ]] || private+=(var)
for each in "${private[@]}"; do
    mkdir "$folder/scratch/$each" "$folder/scratch/.$each"
    mount -t overlay -o "lowerdir=/$each,upperdir=$folder/scratch/$each,workdir=$folder/scratch/.$each" "$each" "/$each"
done

# /sys shows the interfaces of the namespace in which it was mounted.
mkdir "$folder/scratch/cgroup"
mount --rbind /sys/fs/cgroup "$folder/scratch/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$folder/scratch/cgroup" /sys/fs/cgroup

hostname "$name"
ip link set lo up
cat "$folder/hosts" >/etc/hosts
if [[ $kind == node ]]; then
    mkdir -p /etc/docker /var/emulab/boot
    cat "$folder/daemon.json" >/etc/docker/daemon.json
    echo ctl0 >/var/emulab/boot/controlif # where a CloudLab node says which interface is the control network's
    mount --bind "$folder/docker" /var/lib/docker
    mount -t tmpfs -o mode=700 root /root
    mount -t tmpfs run /run
    mkdir /run/lock /run/sshd
    [[ ! -d $ssh_server ]] || mount -t overlay -o "lowerdir=$ssh_server/usr:/usr" usr /usr
    getent passwd sshd >/dev/null || useradd --system --home-dir /run/sshd --shell /usr/sbin/nologin sshd
    mount -t tmpfs -o mode=1777 tmp /tmp
fi
echo ready

# The first process takes over the orphans, and waits for them when they end.
trap : CHLD
while :; do
    sleep 1000 &
    wait $!
done
