# shellcheck shell=bash disable=SC2034,SC2153
# Functions that run on a node of a Swarm. transport.sh sends this file there, and sets the variables in capitals that
# are not set here: PROJECT, RANKS, NUMBER, ADDRESS, ...

FOLDER=/var/tmp/$PROJECT           # results and prepared data; the same path on all nodes
SWARM_NOTE=/var/tmp/lockstep-swarm # the ID of this node in the Swarm of these scripts
SWARM_PORT=2377
SWARM_POOL=10.77.0.0/16 # for Docker's own networks in the Swarm
LEAST_FREE_MIB=5120 # for the image, and for another one while it is replaced
LEAST_FREE_WITH_IMAGE_MIB=1024
START_PATIENCE_SECONDS=60
STOP_SECONDS=35 # within which a rank saves its state and exits, a little more than in stack.yaml
LOOK_SECONDS=0.2
LAST_LINES=8

# Each call is a shell of its own.
[[ ! -S $ENGINE_SOCKET || -w $ENGINE_SOCKET ]] || ! can_be_root || DOCKER_THROUGH_SUDO=yes

# Facts, one a line, and problems that keep this node from taking part.
look() {
    local address='' interface='' control
    read -r address interface < <(address_in "$EXPERIMENT_NETWORK") || true
    control=$(control_interface)
    if [[ ! $address ]]; then
        echo "problem no interface has an address in $EXPERIMENT_NETWORK, the experiment network. The addresses are $(addresses). To use another network, set EXPERIMENT_NETWORK"
    elif [[ $interface == "$control" ]]; then
        echo "problem $address in $EXPERIMENT_NETWORK is on $interface, the control network, which must not carry gradients. To use another network, set EXPERIMENT_NETWORK"
    fi
    echo "address $address"
    echo "interfaces $interface ${control:-unknown}"
    echo "clock $(date +%s)"
    echo "cpu $(nproc) x $(sed -n '/^model name/ { s/.*: //p; q; }' /proc/cpuinfo)"
    look_at_engine
    look_at_disk
}

addresses() { ip -4 -oneline address show | awk '$2 != "lo" { printf "%s%s on %s", comma, $4, $2; comma = ", " }'; }

look_at_engine() {
    local version state node other
    if ! engine_answers; then
        can_be_root || echo "problem the Docker engine is missing or does not answer, and $(id -un) cannot install or start it, because sudo asks for a password. Start it there, or allow sudo without a password"
        ! command -v docker >/dev/null || { echo 'engine off' && return; }
        packages_for engine "$(distribution)" >/dev/null || echo "problem cannot install Docker on $(distribution). Install and start it"
        echo 'engine missing'
        return
    fi
    version=$(docker version --format '{{.Server.Version}}')
    echo "engine $version"
    (check_version 'Docker Engine' "$LEAST_ENGINE" "$version") 2>&1 | sed -E 's/^error: (\[[a-z-]+\] )?/problem /'
    read -r state node < <(docker info --format '{{.Swarm.LocalNodeState}} {{.Swarm.NodeID}}')
    [[ $state == inactive ]] || is_our_swarm "$node" ||
        echo "problem it belongs to another Swarm ($state). If nobody needs that Swarm, run docker swarm leave --force there"
    other=$(docker ps --filter label=lockstep.user --format '{{.Label "com.docker.compose.project"}}{{.Label "com.docker.stack.namespace"}} {{.Label "lockstep.user"}}' |
        awk -v own="$PROJECT" '$1 != own { print $1 " of " ($2 ? $2 : "an unnamed user"); exit }')
    [[ ! $other ]] || echo "problem a run is in progress there: project $other. Wait until it finishes"
}

is_our_swarm() { [[ -O $SWARM_NOTE && $(<"$SWARM_NOTE") == "$1" ]]; }

look_at_disk() {
    local place needed=$LEAST_FREE_MIB free
    place=$(docker info --format '{{.DockerRootDir}}' 2>/dev/null) || place=''
    [[ $place ]] || place=/var/lib/docker
    [[ ! $(docker image ls --quiet lockstep 2>/dev/null) ]] || needed=$LEAST_FREE_WITH_IMAGE_MIB
    until [[ -d $place ]]; do place=$(dirname "$place"); done
    free=$(free_mib "$place")
    echo "free $free"
    ((free >= needed)) ||
        echo "problem only $free MiB are free in $place, where Docker keeps its images, of $needed MiB required. Free some space, or move Docker's data to a larger disk"
}

free_mib() { df --output=avail -B 1M "$1" | sed -n '2s/ *//p'; }

# The engine, and the folders of this project. Only the first node builds.
ready() {
    if ((NUMBER == 0)) || ! engine_answers; then ready_engine; fi
    mkdir -m 700 "$FOLDER" 2>/dev/null || true
    [[ -O $FOLDER ]] || fail node-not-ready "$FOLDER belongs to another user. Remove it there, or set another COMPOSE_PROJECT_NAME."
    mkdir -p "$FOLDER/results" "$FOLDER/prepared" "$FOLDER/data" "$FOLDER/source"
    clear_all # of an interrupted run
    withdraw_image
    docker info --format '{{.Swarm.NodeID}}'
}

# Whether this node manages a Swarm of exactly these nodes, all of them ready.
swarm_is_whole() {
    local found
    found=$(docker node ls --format '{{.ID}} {{.Status}}' 2>/dev/null | sort) || return 1
    [[ $found == "$(printf '%s Ready\n' "$@" | sort)" ]]
}

leave_swarm() {
    local state node
    engine_answers || return 0
    read -r state node < <(docker info --format '{{.Swarm.LocalNodeState}} {{.Swarm.NodeID}}')
    [[ $state == inactive ]] || ! is_our_swarm "$node" || quietly docker swarm leave --force
    rm -f "$SWARM_NOTE"
}

# All traffic of the Swarm itself crosses the experiment network.
swarm_at_own_address() {
    quietly docker swarm "$1" --listen-addr "$ADDRESS:$SWARM_PORT" --advertise-addr "$ADDRESS" --data-path-addr "$ADDRESS" "${@:2}"
}

found_swarm() {
    swarm_at_own_address init --default-addr-pool "$SWARM_POOL"
    note_swarm
    docker swarm join-token --quiet worker
}

join_swarm() {
    swarm_at_own_address join --token "$1" "$FIRST_ADDRESS:$SWARM_PORT"
    note_swarm
}

note_swarm() { docker info --format '{{.Swarm.NodeID}}' | tee "$SWARM_NOTE"; }

# The Swarm must not reschedule a rank before the ranks themselves detect a failure. The containers of all attempts are
# kept, for their output.
settle_swarm() { quietly docker swarm update --dispatcher-heartbeat "$1s" --task-history-limit "$((MAX_RESTARTS + 1))"; }

make_image() {
    REVISION=$1
    cd "$FOLDER/source" || return 1
    build_image >&2
    echo "$IMAGE"
}

# Lets the nodes that have a key fetch the image over SSH, and nothing else. Prints user and port of this node's server,
# then its host keys as known_hosts has them.
offer_image() {
    local file=$HOME/.ssh/authorized_keys port=${SSH_CONNECTION:-22}
    port=${port##* }
    withdraw_image
    docker save "$IMAGE" >"$FOLDER/image.tar"
    umask 077
    mkdir -p "$HOME/.ssh"
    [[ ! -s $file || ! $(tail -c 1 "$file") ]] || echo >>"$file"
    echo "restrict,command=\"cat $FOLDER/image.tar\" $1 $PROJECT-image" >>"$file"
    echo "$(id -un) $port"
    ssh-keyscan -p "$port" "$ADDRESS" 2>/dev/null
}

withdraw_image() {
    rm -f "$FOLDER/image.tar"
    ! grep -qs " $PROJECT-image\$" "$HOME/.ssh/authorized_keys" || sed -i "/ $PROJECT-image\$/d" "$HOME/.ssh/authorized_keys"
}

fetch_image() {
    local key known_hosts user port
    umask 077
    temporary_file key
    temporary_file known_hosts
    echo "$1" >"$key"
    sed 1d <<<"$2" >"$known_hosts"
    read -r user port <<<"$2"
    ssh -F none -i "$key" -p "$port" -o BatchMode=yes -o IdentitiesOnly=yes -o UserKnownHostsFile="$known_hosts" \
        -o ConnectTimeout=15 -o ServerAliveInterval=10 "$user@$FIRST_ADDRESS" | quietly docker load ||
        fail node-unreachable "cannot fetch the image over SSH from $user@$FIRST_ADDRESS, port $port. Let the nodes reach each other's SSH servers on the experiment network."
}

# A command of the image with this node's folders and the settings of the run. Options of Docker come first.
one_shot() {
    docker run --rm --read-only --tmpfs /tmp --security-opt no-new-privileges --cap-drop ALL \
        --cap-add SETUID --cap-add SETGID --cap-add SETPCAP --cap-add CHOWN --cap-add KILL --init \
        --label "com.docker.stack.namespace=$PROJECT" \
        --env RANKS_STARTED="$RANKS" "${PASSED[@]}" --volume "$FOLDER/results:/lockstep/results" \
        --volume "$FOLDER/prepared:/lockstep/prepared" --volume "$FOLDER/data:/lockstep/data" "$@"
}

prepare() {
    exec 8>"$FOLDER/lock" # inherited by docker, which may keep running after the connection has ended
    flock --wait "$START_PATIENCE_SECONDS" 8 || fail run-in-progress "another process prepares data in $FOLDER. Wait until it finishes."
    local only=()
    ((NUMBER == 0)) || only=(--only-data)
    one_shot --network bridge "$IMAGE" prepare "${only[@]}"
}

# The run that `prepare` has opened or chosen, and whether it is resumed.
prepared_run() { sed -nE 's/.*"run": "([^"]*)", "goes_on": (true|false).*/\1 \2\n/p' "$FOLDER/prepared/run.json"; }

# Starts all ranks, and waits for rank 0.
deploy() {
    export NODES=$1 LOCKSTEP_IMAGE=$IMAGE NODE_FOLDER=$FOLDER LOCKSTEP_USER=$2 RESTART_CONDITION=on-failure
    ((MAX_RESTARTS > 0)) || RESTART_CONDITION=none
    if [[ $NETWORK == overlay ]]; then
        quietly docker network create --driver overlay --internal --label "com.docker.stack.namespace=$PROJECT" "${PROJECT}_ranks"
        export RANKS_NETWORK=${PROJECT}_ranks MASTER_ADDR=rank0 NODE='{{.Node.ID}}'
    fi
    quietly docker stack deploy --resolve-image never --compose-file "$FOLDER/source/docker/stack.yaml" "$PROJECT"
    local container='' problem deadline=$((SECONDS + START_PATIENCE_SECONDS))
    until [[ $container ]]; do
        problem=$(docker service ps --no-trunc --format '{{.Error}}' "${PROJECT}_rank0" | sed '/^$/d' | head -n 1)
        ((SECONDS < deadline)) || problem=${problem:-"no container within $START_PATIENCE_SECONDS s"}
        [[ ! $problem ]] || fail run-failed "the Swarm cannot start rank 0: $problem"
        sleep 0.1
        container=$(rank_containers --filter status=running --filter status=exited)
    done
}

# The containers of this node's rank, the newest first: the Swarm creates one for each attempt.
rank_containers() {
    docker ps --all --quiet --filter "label=com.docker.stack.namespace=$PROJECT" --filter label=com.docker.swarm.task "$@"
}

# Rank 0's lines of the last seconds, or all, and later ones.
follow_rank0() {
    local run=$1 columns=$2 since=$3
    export TERM LOCKSTEP_IMAGE=$IMAGE
    # --volumes-from fails on a container with a tmpfs created by a Swarm.
    if [[ $columns ]]; then
        lines_of_rank0 "$run" "$since" 2>&1 |
            with_bar "$columns" --volume "$FOLDER/results:/lockstep/results:ro" --volume "$FOLDER/prepared:/lockstep/prepared:ro"
    else
        lines_of_rank0 "$run" "$since"
    fi
}

lines_of_rank0() {
    local run=$1 since=(${2:+--since "$2s"}) container=''
    while container=$(next_attempt "$run" "$container"); do
        ((${#since[@]} > 0)) || [[ $container == "$(rank_containers | tail -n 1)" ]] ||
            say "The Swarm has restarted rank 0 ($(($(rank_containers | wc -l) - 1)) of $MAX_RESTARTS)"
        docker logs --follow "${since[@]}" "$container"
        since=()
    done
}

# The container of rank 0 after the given one, or the newest. Fails once rank 0 has exited for good.
next_attempt() {
    local run=$1 before=$2 container state code deadline=$((SECONDS + START_PATIENCE_SECONDS))
    while ((SECONDS < deadline)); do
        container=$(rank_containers | head -n 1)
        [[ $container ]] || return 1
        read -r state code < <(docker inspect --format '{{.State.Status}} {{.State.ExitCode}}' "$container") || return 1
        if [[ $state == @(running|exited) && $container != "$before" ]]; then
            echo "$container"
            return
        fi
        [[ $state != running ]] || deadline=$((SECONDS + START_PATIENCE_SECONDS))
        [[ $state != exited ]] || restarts_after "$run" "$code" || return 1
        sleep "$LOOK_SECONDS"
    done
    return 1
}

restarts_after() {
    local run=$1 code=$2
    ((code != 0 && $(rank_containers | wc -l) <= MAX_RESTARTS)) && [[ ! $(hopeless_end "$run") ]]
}

# The exit code of the last attempt, if that was a deterministic failure.
hopeless_end() { tail -n 1 "$FOLDER/results/$1/attempts.jsonl" 2>/dev/null | sed -n 's/.*"exit_code": \([0-9]*\), "comes_again": true.*/\1/p'; }

state_of_rank0() { docker inspect --format '{{.State.Status}}' "$(rank_containers | head -n 1)" 2>/dev/null || echo gone; }

exit_code_of_rank0() {
    local run=$1 container='' next
    while next=$(next_attempt "$run" "$container"); do
        container=$next
        docker wait "$container" >/dev/null
    done
    docker inspect --format '{{.State.ExitCode}}' "$container"
}

describe_rank() {
    local container state code memory
    container=$(rank_containers | head -n 1)
    [[ $container ]] || { echo 'no rank was started on this node' && return; }
    read -r state code memory < <(docker inspect --format '{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}' "$container")
    ((code != 0)) || [[ $state == running ]] || return 0
    if [[ $state == running ]]; then
        echo 'its rank is still running. Its last lines:'
    elif ((code > 128)); then
        echo "its rank was killed by $(name_of_signal $((code - 128))) with exit code $code. Its last lines:"
    else
        echo "its rank exited with code $code. Its last lines:"
    fi
    [[ $memory != true ]] || echo '    it ran out of memory. Raise or unset RANK_MEMORY.'
    docker logs --tail "$LAST_LINES" "$container" 2>&1 | sed 's/^/    /'
}

# Whether the ranks have saved a state of this run that it can resume from.
is_resumable() {
    [[ $(find "$FOLDER/results/$1/checkpoint" -mindepth 2 -name commit.json 2>/dev/null) && ! $(hopeless_end "$1") ]] &&
        ! grep -qs '"complete": true' "$FOLDER/results/$1/summary.json"
}

remove_stack() {
    docker stack rm "$PROJECT" >/dev/null 2>&1 || true
    clear_containers
    local deadline=$((SECONDS + START_PATIENCE_SECONDS))
    until docker network rm "${PROJECT}_ranks" >/dev/null 2>&1 || ! docker network inspect "${PROJECT}_ranks" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || return 0
        sleep 0.2
    done
}

# On the first node the stack, on the others the containers that the Swarm has not removed yet.
clear_all() {
    if ((NUMBER == 0)); then remove_stack; else clear_containers; fi
}

# Removes all containers, once the rank has saved its state. Repeated, because the Swarm may still be starting one.
clear_containers() {
    local found containers attempt deadline=$((SECONDS + STOP_SECONDS))
    until [[ ! $(rank_containers --filter status=running) ]] || ((SECONDS >= deadline)); do sleep "$LOOK_SECONDS"; done
    for attempt in 1 2 3; do
        found=$(docker ps --all --quiet --filter "label=com.docker.stack.namespace=$PROJECT")
        [[ $found ]] || return 0
        mapfile -t containers <<<"$found"
        docker rm --force "${containers[@]}" >/dev/null 2>&1 || ((attempt < 3))
    done
}

forget_run() {
    [[ ! $1 ]] || rm -rf "${FOLDER:?}/results/$1"
    rm -f "$FOLDER/results/latest"
    find "$FOLDER/results" -mindepth 1 -maxdepth 1 -type d -empty -delete # of a run that has not begun
}

# Removes everything that these scripts have put on this node, except Docker itself.
remove_all() {
    if engine_answers; then
        docker stack rm "$PROJECT" >/dev/null 2>&1 || true
        clear_containers
        withdraw_image
        leave_swarm
        leave_image "lockstep:of-$PROJECT"
    fi
    rm -rf "$FOLDER"
}
