# shellcheck shell=bash
# One run of the cluster, from the image to rank 0's exit code and the removal of its containers.

# Everything before the image: NAME=value arguments, the settings that Compose consumes, the engine.
ready_cluster() {
    take_arguments "$@"
    check_compose_settings
    ready_engine
    check_against_engine
    ready_base_image
}

# Without this, RANK_CPUS above the engine's CPUs would fail only after the build, and a taken network with Docker's
# own message.
check_against_engine() {
    local cpus has
    cpus=$(setting RANK_CPUS)
    has=$(docker info --format '{{.NCPU}}')
    if [[ $cpus ]] && awk "BEGIN { exit !($cpus > $has) }"; then
        refuse "RANK_CPUS=$cpus: not allowed. Allowed: more than 0 and at most $has, the CPUs that this engine has."
    fi
    check_network_is_free "$(project_name)"
}

project_name() { docker compose config | sed -n 's/^name: //p'; }

# Runs a command of the image on every rank, after another one that runs once: 'prepare', or 'check' if the ranks need
# no data set. Ends with rank 0's exit code.
run_cluster() {
    claim_project
    build_image
    run_ranks "${1%% *} --variables=$(variables)${1#"${1%% *}"}" "$2"
}

# Refuses to start while the project has a run in progress. Removes the remains of a failed run.
claim_project() {
    if [[ $(docker compose ps --quiet --status running) ]]; then
        refuse "project $(project_name) has a run in progress. Wait for it, or end it with scripts/down, or use another project: COMPOSE_PROJECT_NAME=other NETWORK_PREFIX=10.77.2 $0"
    fi
    [[ -z $(docker compose ps --all --quiet) ]] || remove_containers
}

# Trains twice, first without synchronisation, and compares the two. Both are checked before the first one starts.
run_with_floor() {
    local run
    run=$(given RUN_NAME)
    run=${run:-$(date -u +%Y%m%d-%H%M%S)}
    export RUN_NAME=$run
    claim_project
    build_image
    run_once "check --with-floor --variables=$(variables)"
    say "== $run-floor: the floor, SYNC_MODE=none"
    run_floor "$run-floor"
    say "== $run"
    run_ranks prepare train
    say "== $run against its floor"
    attend of_runs compare "$run" --baseline "$run-floor"
    attend of_runs report "$run" --baseline "$run-floor"
}

run_floor() {
    local -x RUN_NAME=$1 SYNC_MODE=none
    run_ranks prepare train
}

# run_cluster with the image as it is.
run_ranks() {
    local code
    export RANK_COMMAND=$2
    run_once "$1"
    start worker rank0
    attend follow "$(container_of rank0)" || true
    code=$(docker wait "$(container_of rank0)")
    ((code == 0)) || explain_failure "$code"
    remove_containers
    ((code == 0)) || exit "$code"
}

# A command of the image that runs once, before the ranks. If it fails, this ends with its exit code.
run_once() {
    local code
    export PREPARE_COMMAND=$1
    trap 'end_early 130' INT
    trap 'end_early 143' TERM HUP

    # With the world size given, `prepare` can refuse a rank that will not exist, and rank 0 notices a worker that died
    # before rank 0 counted them.
    WORLD_SIZE=$(given WORLD_SIZE)
    export WORLD_SIZE=${WORLD_SIZE:-$(number_of_ranks)}
    start prepare
    attend docker logs --follow "$(container_of prepare)"
    code=$(docker wait "$(container_of prepare)")
    if ((code != 0)); then
        remove_containers
        exit "$code"
    fi
}

start() { attend docker compose --progress quiet up --detach --no-build --no-deps "$@"; }

container_of() { docker compose ps --all --quiet "$1"; }

# All checkouts on this machine share the image's name. From here on the image goes by its ID, so a build in another
# checkout changes nothing here.
build_image() {
    local image=lockstep
    export LOCKSTEP_IMAGE=$image
    REVISION=$(git describe --always --dirty 2>/dev/null) || REVISION=''
    export REVISION
    if [[ -t 2 ]]; then
        attend docker compose build
    else
        docker image inspect "$image" >/dev/null 2>&1 || say 'Building the image, which takes a minute or two the first time'
        attend quietly docker compose --progress plain build
    fi
    LOCKSTEP_IMAGE=$(docker image inspect --format '{{.Id}}' "$image")
}

# A command of the image over finished runs, whose folders may be given as paths on the host or in the image.
read_runs() {
    local command=$1
    shift
    ready_engine
    ready_base_image
    build_image
    of_runs "$command" "$@"
}

# The same with the image as it is.
of_runs() {
    local command=$1
    shift
    set -- "${@/#"--baseline=$PWD/"/--baseline=}"
    of_image --volume "$PWD/results:/lockstep/results" "$LOCKSTEP_IMAGE" "$command" "${@#"$PWD/"}"
}

# Without a network, and with only the rights that the entrypoint needs to drop all rights.
of_image() {
    docker run --rm --network none --read-only --tmpfs /tmp --security-opt no-new-privileges \
        --cap-drop ALL --cap-add SETUID --cap-add SETGID --cap-add SETPCAP "$@"
}

# Rank 0's lines. On a terminal, a training run gets a progress bar below them.
follow() {
    if [[ $RANK_COMMAND != train || ! -t 1 ]]; then
        docker logs --follow "$1"
        return
    fi
    local columns
    columns=$(stty size </dev/tty | cut -d ' ' -f 2)
    docker logs --follow "$1" 2>&1 |
        docker run --rm --interactive --volumes-from "$1:ro" --user "$(id -u):$(id -g)" \
            --network none --read-only --cap-drop ALL --security-opt no-new-privileges \
            --env "COLUMNS=$columns" --env TERM --entrypoint python3 "$LOCKSTEP_IMAGE" -m app progress
}

# Runs a command. A signal to this script is answered at once, not only when the command ends.
attend() {
    begin "$@"
    wait "$ATTENDED"
}

# Starts a command as its own process group (set -m), which can be ended with all its children.
begin() {
    set -m
    "$@" &
    ATTENDED=$!
    set +m
}

end_early() {
    local code=$1
    trap '' INT TERM HUP
    [[ ! -t 1 ]] || printf '\033[?25h\n' # the bar had hidden the cursor
    say 'Stopping the containers'
    [[ -z ${ATTENDED:-} ]] || kill -- "-$ATTENDED" 2>/dev/null || true
    remove_containers
    exit "$code"
}

remove_containers() { quietly docker compose --progress quiet down --remove-orphans; }

# After a training run the stopped containers stay, and their output can be read. After other commands they do not:
# their workers print only errors, which are shown here.
explain_failure() {
    local code=$1 container
    quietly docker compose --progress quiet stop
    for container in $(docker compose ps --all --quiet); do
        docker inspect --format '{{if .State.OOMKilled}}{{.Name}} ran out of memory: raise or unset RANK_MEMORY.{{end}}' \
            "$container" | sed -n 's|^/||p' >&2
    done
    if [[ $RANK_COMMAND != train ]]; then
        for container in $(container_of worker); do
            docker logs "$container" >&2
        done
        return
    fi
    # Rank 0 itself may have been killed, and the others may have written more since it gave up.
    of_image --volumes-from "$(container_of rank0)" "$LOCKSTEP_IMAGE" report || true
    say "Rank 0 ended with exit code $code. All ranks' output: docker compose logs. To remove the containers: scripts/down"
    exit "$code"
}
