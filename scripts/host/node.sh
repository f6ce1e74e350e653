# shellcheck shell=bash
# A CloudLab node: its disk, its Docker engine, its address on the experiment network. All of it may be set up already.

NETWORK_OF_PROFILE=10.10.1.0/24
ENGINE_SETTINGS=/etc/docker/daemon.json
ENGINE_CONDITION=/etc/systemd/system/docker.service.d/lockstep.conf
DISK_PATIENCE_SECONDS=300
ENGINE_PATIENCE_SECONDS_AT_BOOT=600 # others install packages then as well, and hold apt's lock
ENGINE_PAUSE_SECONDS=15
ADDRESS_PATIENCE_SECONDS=120

# Prepares this node, with Docker's data on the disk mounted at a folder, or in Docker's default folder.
make_node_ready() {
    local disk=${1:-}
    [[ $EUID -eq 0 ]] || refuse no-permission "this command configures the whole machine and needs root. Start it with sudo."
    [[ -z $disk ]] || await_disk "$disk"
    configure_engine "$disk"
    await_engine
    await_address
    describe_node "$disk"
}

await_disk() {
    local disk=$1 deadline=$((SECONDS + DISK_PATIENCE_SECONDS))
    until mountpoint -q "$disk"; do
        ((SECONDS < deadline)) ||
            fail node-not-ready "no disk is mounted at $disk after $DISK_PATIENCE_SECONDS s. Check lsblk and /etc/fstab. To keep Docker's data on the root file system instead, omit $disk."
        sleep 1
    done
}

# All of Docker's data goes to the disk, including images, which the newer store of containerd would keep on the root
# file system. Docker's own networks do not overlap the experiment network.
engine_settings() {
    local disk=$1
    echo '{'
    [[ -z $disk ]] || echo "  \"data-root\": \"$disk/docker\","
    echo '  "features": {"containerd-snapshotter": false},'
    echo '  "default-address-pools": [{"base": "10.200.0.0/16", "size": 24}]'
    echo '}'
}

configure_engine() {
    local disk=$1 wanted
    wanted=$(engine_settings "$disk")
    if [[ -e $ENGINE_SETTINGS ]]; then
        [[ $(<"$ENGINE_SETTINGS") != "$wanted" ]] || return 0
        fail node-not-ready "$ENGINE_SETTINGS exists with other settings and is left untouched. Add these to it, restart Docker, and repeat the command:
$wanted"
    fi
    mkdir -p "$(dirname "$ENGINE_SETTINGS")"
    write_condition "$disk"
    echo "$wanted" >"$ENGINE_SETTINGS.new"
    mv "$ENGINE_SETTINGS.new" "$ENGINE_SETTINGS"
    restart_engine
}

# At boot the engine can start before the disk is mounted. It would then use the empty folder below the mount point.
write_condition() {
    local disk=$1
    [[ $disk && -d /run/systemd/system ]] || return 0
    mkdir -p "$(dirname "$ENGINE_CONDITION")"
    printf '[Unit]\nConditionPathIsMountPoint=%s\n' "$disk" >"$ENGINE_CONDITION"
    systemctl daemon-reload
}

restart_engine() {
    engine_answers || return 0
    say 'Restarting the Docker engine with its new settings'
    if [[ -d /run/systemd/system ]]; then systemctl restart docker; else service docker restart; fi
}

# Repeatedly, because at the first boot apt's lock is held for minutes, or a mirror does not answer yet.
await_engine() {
    local deadline=$((SECONDS + ENGINE_PATIENCE_SECONDS_AT_BOOT))
    until (ready_engine); do
        ((SECONDS < deadline)) ||
            fail node-not-ready "Docker is not ready after $ENGINE_PATIENCE_SECONDS_AT_BOOT s. The reason is above."
        say "Docker is not ready. Retrying in $ENGINE_PAUSE_SECONDS s"
        sleep "$ENGINE_PAUSE_SECONDS"
    done
}

await_address() {
    local deadline=$((SECONDS + ADDRESS_PATIENCE_SECONDS))
    until [[ $(address_in "$NETWORK_OF_PROFILE") ]]; do
        ((SECONDS < deadline)) ||
            fail node-not-ready "no interface has an address in $NETWORK_OF_PROFILE, the experiment network, after $ADDRESS_PATIENCE_SECONDS s. Compare 'ip address' with /var/emulab/boot/ifmap, and reboot the node from the portal."
        sleep 1
    done
}

describe_node() {
    local disk=$1 root address interface
    read -r address interface < <(address_in "$NETWORK_OF_PROFILE")
    root=$(docker info --format '{{.DockerRootDir}}')
    [[ -z $disk || $root == "$disk"/* ]] ||
        fail node-not-ready "Docker keeps its data in $root, not on the disk at $disk. Restart it: sudo systemctl restart docker"
    say "$(uname -n) is ready: Docker $(docker version --format '{{.Server.Version}}'), its data in $root ($(df -h --output=avail "$root" | sed -n '2s/ //gp') free);" \
        "experiment network: $address on $interface; control network: $(control_interface)"
}
