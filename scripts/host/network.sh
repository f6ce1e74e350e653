# shellcheck shell=bash
# The subnet of the ranks' private network, which nothing else may use.

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
