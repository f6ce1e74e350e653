# shellcheck shell=bash
# Subnets: that of the ranks' private network, which nothing else may use, and this machine's addresses in others.

CONTROL_FILE=/var/emulab/boot/controlif # where a node of CloudLab names its control interface

check_network_is_free() {
    local project=$1 prefix owner
    prefix=$(setting NETWORK_PREFIX)
    owner=$(owner_of "$prefix" "$project")
    [[ -z $owner ]] || refuse invalid-setting "NETWORK_PREFIX=$prefix: $prefix.0/24 is in use by $owner. Choose another one, such as NETWORK_PREFIX=$(free_prefix), or unset it to let Docker choose."
}

free_prefix() {
    local number
    for number in {1..254}; do
        [[ $(owner_of "10.77.$number" '') ]] || break
    done
    echo "10.77.$number"
}

# The user of a prefix, other than this project; nothing if it is free.
owner_of() {
    local prefix=$1 project=$2 subnet owner
    while read -r subnet owner; do
        if overlap "$prefix.0/24" "$subnet"; then
            echo "$owner"
            return
        fi
    done < <(taken_subnets "$project")
}

# Each subnet in use with its user.
taken_subnets() {
    local project=$1 networks
    mapfile -t networks < <(docker network ls --quiet)
    docker network inspect "${networks[@]}" --format \
        '{{$n := .}}{{range .IPAM.Config}}{{.Subnet}} {{index $n.Labels "com.docker.compose.project"}}! the Docker network {{$n.Name}}{{"\n"}}{{end}}' |
        sed -n "/ $project! /d; s/ [^ ]*! / /p"
    # Docker accepts a subnet that the host already routes, and hides that route. Bridges are Docker's own.
    if command -v ip >/dev/null; then
        ip -4 route show | awk '$1 ~ /^[1-9]/ && $3 !~ /^(br-|docker)/ {
            if ($1 !~ /\//) $1 = $1 "/32"
            print $1, "a route of this host (" $2, $3 ")"
        }'
    fi
}

# This machine's address in a subnet, and its interface.
address_in() {
    local interface address
    while read -r interface address; do
        ! overlap "$address" "$1" || { echo "${address%/*} $interface" && return; }
    done < <(ip -4 -oneline address show | awk '$2 !~ /^(lo|docker|br-)/ { sub("/.*", "/32", $4); print $2, $4 }')
}

control_interface() { cat "$CONTROL_FILE" 2>/dev/null || ip -4 route show default | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1; }

# Whether two subnets, a.b.c.d/n each, have an address in common.
overlap() {
    local bits=${1#*/}
    ((bits <= ${2#*/})) || bits=${2#*/}
    [[ $2 == *.*.*.*/* ]] || return 1
    ((bits == 0)) || (($(number_of "${1%/*}") >> (32 - bits) == $(number_of "${2%/*}") >> (32 - bits)))
}

number_of() {
    local IFS=. parts
    read -r -a parts <<<"$1"
    echo $(((10#${parts[0]} << 24) + (10#${parts[1]} << 16) + (10#${parts[2]} << 8) + 10#${parts[3]}))
}
