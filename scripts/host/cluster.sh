# shellcheck shell=bash
# One run of the cluster, from the image to rank 0's exit code and the removal of its containers.

LOOK_SECONDS=0.1
MOST_TOLD=3  # dead workers that a failed run reports
LAST_LINES=8 # of a dead worker's output
END_LOOKS=100 # tenths of a second that an interrupted command has to end
RUN_FOLDER='' # of the run in progress, once `prepare` has named it

ready_project() {
    check_compose_settings
    ready_engine
    read_dotenv
    check_compose_settings
    name_project
}

ready_cluster() {
    on_signals end_early
    take_arguments "$@"
    ready_project
    check_against_engine
}

# Without this check, Docker would report the limits of the engine only after the build.
check_against_engine() {
    local cpus has
    cpus=$(setting RANK_CPUS)
    has=$(engine_cpus)
    if [[ $cpus ]] && awk "BEGIN { exit !($cpus > $has) }"; then
        refuse invalid-setting "invalid RANK_CPUS '$cpus'. Give more than 0 and at most $has, the CPUs that this engine has."
    fi
    [[ -z $(setting NETWORK_PREFIX) ]] || check_network_is_free "$(project_name)"
    check_data_folder
}

check_data_folder() {
    local folder
    folder=$(setting DATA_FOLDER)
    [[ -d $(data_folder) ]] || refuse missing-file "DATA_FOLDER=$(shown "$folder") does not exist. Create the folder, or unset DATA_FOLDER to use data/."
}

data_folder() {
    local folder
    folder=$(setting DATA_FOLDER)
    (cd -- "${folder/#\~/"$HOME"}" 2>/dev/null && pwd)
}

# Runs a command of the image on every rank, after one that runs once: 'prepare', or 'check' if the ranks need no data
# set. Ends with rank 0's exit code.
run_cluster() {
    ready_run
    run_ranks "${1%% *} $(circumstances)${1#"${1%% *}"}" "$2"
}

ready_run() {
    claim_project
    build_image
    check_settings
    say "Project $(project_name)"
}

# Facts that only the host knows: variables that may be misspelt settings, and other clusters on the same cores.
circumstances() { echo "--variables=$(variables) --neighbours=$(neighbours)"; }

# Trains twice, first without synchronisation, and compares the two. Both are checked before the first run starts.
run_with_floor() {
    local run
    run=$(given RUN_NAME)
    run=${run:-$(date -u +%Y%m%d-%H%M%S)}
    export RUN_NAME=$run RESUME=never
    ready_run
    run_once "check --with-floor $(circumstances)"
    say "== $run-floor: baseline without synchronisation, SYNC_MODE=none"
    run_floor "$run-floor"
    say "== $run"
    run_ranks "prepare --neighbours=$(neighbours)" train
    say "== $run compared with $run-floor"
    attend of_runs report "$run" --baseline "$run-floor"
}

run_floor() {
    local -x RUN_NAME=$1 SYNC_MODE=none
    local name
    for name in $(settings_of_averaging); do local -x "$name="; done
    run_ranks "prepare --neighbours=$(neighbours)" train
}

run_ranks() {
    local code ranks
    export RANK_COMMAND=$2
    touch "$CLAIM" # records of this run are newer
    begin_once "$1"
    start --no-start worker rank0 # most of the work of starting them, while `prepare` runs
    end_once
    ranks=$(number_of_ranks)
    say "Starting $ranks rank$( ((ranks == 1)) || echo s)"
    start --no-recreate worker rank0
    find_run
    attend follow "$(container_of rank0)" || true
    code=$(hopeless)
    [[ ! $code ]] || quietly docker compose --progress quiet stop # or Docker would restart the ranks
    code=${code:-$(end_of "$(container_of rank0)")}
    ((code == 0)) || explain_failure "$code"
    remove_containers
    ((code == 0)) || exit "$code"
}

# A command of the image that runs once, before the ranks. If it fails, this ends with its exit code.
run_once() {
    begin_once "$1"
    end_once
}

begin_once() {
    export PREPARE_COMMAND=$1
    RUN_FOLDER=''
    on_signals end_early

    choose_backend
    choose_restarts

    # Lets `prepare` refuse a rank that will not exist, and rank 0 notice a worker that died before the count.
    RANKS_STARTED=$(number_of_ranks)
    export RANKS_STARTED
    start prepare
}

end_once() {
    local code
    attend show_once "$(container_of prepare)"
    code=$(docker wait "$(container_of prepare)")
    if ((code != 0)); then
        remove_containers
        exit "$code"
    fi
}

choose_backend() {
    [[ $(given BACKEND) != mpi ]] || export COMPOSE_FILE=compose.yaml:docker/compose.mpi.yaml COMPOSE_PATH_SEPARATOR=:
}

# Docker restarts the failed ranks of a training run. It takes a limit of 0 for no limit.
choose_restarts() {
    local most
    most=$(setting MAX_RESTARTS)
    [[ ${RANK_COMMAND:-train} == train && $(given BACKEND) != mpi ]] || most=0
    export MAX_RESTARTS=$((10#$most)) RESTART_POLICY=no
    ((MAX_RESTARTS == 0)) || RESTART_POLICY=on-failure:$MAX_RESTARTS
}

show_once() { docker logs --follow "$1"; } # faults.sh replaces it

# From the last line of `prepare`. Other projects of this checkout have their runs in the same folder.
find_run() {
    local run
    run=$(docker logs "$(container_of prepare)" 2>/dev/null | sed -nE 's|^results/([A-Za-z0-9][A-Za-z0-9._-]*): .*|\1|p' | tail -n 1) || true
    RUN_FOLDER=${run:+${RESULTS_FOLDER:-results}/$run}
}

start() {
    local log found=0
    temporary_file log
    up "$@" 2>"$log" || found=$?
    # Docker's own pools hold about thirty networks. Further ones need an explicit subnet.
    if ((found != 0)) && [[ -z $(setting NETWORK_PREFIX) ]] && grep -q 'address pool' "$log"; then
        NETWORK_PREFIX=$(free_prefix)
        export NETWORK_PREFIX
        up "$@" 2>"$log" && found=0
    fi
    ((found == 0)) || cat "$log" >&2
    return "$found"
}

up() { attend quietly docker compose --progress quiet up --detach --no-build --no-deps "$@"; }

container_of() { containers --all --filter "label=com.docker.compose.service=$1"; }

# A command of the image over finished runs, whose folders may be given as paths on the host or in the image.
read_runs() {
    on_signals end_early
    ready_engine
    read_dotenv
    name_project
    build_image
    of_runs "$@"
}

# The same with the image as it is.
of_runs() { of_image --volume "$PWD/results:/lockstep/results" "$LOCKSTEP_IMAGE" "${@/"$PWD/"/}"; }

show_schedule() {
    local -a options=()
    options_of_settings
    with_own "${options[@]}" "$LOCKSTEP_IMAGE" schedule
}

# Adds each setting that is given to the caller's options of docker run.
options_of_settings() {
    local name value
    for name in $(known_settings); do
        value=$(given "$name")
        [[ -z $value ]] || options+=(--env "$name=$value")
    done
}

# Refuses an invalid setting at once. `prepare` checks them too, but only while Compose creates the network and all
# containers, which takes seconds.
check_settings() {
    local -a options=(--env "RANKS_STARTED=$(number_of_ranks)")
    options_of_settings
    attend with_own --volume "$PWD/results:/lockstep/results" "${options[@]}" "$LOCKSTEP_IMAGE" check-settings || exit
}

# A command that sees the user's own modes, models and data sets. The quotes are for commas in a path.
with_own() {
    local folder
    folder=$(data_folder)
    of_image --volume "$PWD/extensions:/lockstep/extensions:ro" \
        --mount "type=bind,\"source=${folder//\"/\"\"}\",target=/lockstep/data,readonly" "$@"
}

# Without a network, and with only the rights that the entrypoint needs to drop all rights.
of_image() {
    docker run --rm --network none --read-only --tmpfs /tmp --security-opt no-new-privileges \
        --cap-drop ALL --cap-add SETUID --cap-add SETGID --cap-add SETPCAP "$@"
}

# Rank 0's lines. On a terminal, training gets a progress bar below them.
follow() {
    if [[ $RANK_COMMAND != train* || ! -t 1 ]]; then
        lines_of "$1"
        return
    fi
    lines_of "$1" 2>&1 | with_bar "$(stty size </dev/tty | cut -d ' ' -f 2)" --volumes-from "$1:ro"
}

# A container's lines until it exits for good.
lines_of() {
    local container=$1 since=() state again moment restarts=0
    while true; do
        docker logs --follow "${since[@]}" "$container"
        [[ ! $(hopeless) ]] || return 0
        read -r state again moment < <(next_state "$container" "$restarts")
        [[ $state == running ]] || return 0
        say "Docker has restarted $(name_of "$container") ($again of $MAX_RESTARTS)"
        restarts=$again since=(--since "$moment")
    done
}

# The exit code of the last attempt of this start, if that was a deterministic failure.
hopeless() {
    find "$RUN_FOLDER" -maxdepth 1 -name attempts.jsonl -newer "$CLAIM" -exec tail -n 1 {} + 2>/dev/null |
        sed -n 's/.*"exit_code": \([0-9]*\), "comes_again": true.*/\1/p' || true
}

# State, restarts and start time of a container, once it has exited or has had another than this number of restarts.
next_state() {
    local state again moment
    while true; do
        read -r state again moment < <(docker inspect --format '{{.State.Status}} {{.RestartCount}} {{.State.StartedAt}}' "$1") || return
        [[ $state == restarting || ($state == running && $again -eq $2) ]] || break
        sleep "$LOOK_SECONDS"
    done
    echo "$state $again $moment"
}

end_of() {
    while [[ $(docker inspect --format '{{.State.Status}}' "$1") == @(running|restarting) ]]; do sleep "$LOOK_SECONDS"; done
    docker inspect --format '{{.State.ExitCode}}' "$1"
}

name_of() { docker inspect --format '{{slice .Name 1}}' "$1"; }

# Rank 0's lines with the bar below them. Further arguments give the container that draws it the ranks' folders.
with_bar() {
    local columns=$1 command=${RANK_COMMAND:-train}
    shift
    ((columns > 0)) || columns=80 # a terminal without a size
    # shellcheck disable=SC2086 # no option, or --series
    docker run --rm --interactive "$@" --user "$(id -u):$(id -g)" \
        --network none --read-only --cap-drop ALL --security-opt no-new-privileges \
        --env "COLUMNS=$columns" --env TERM --entrypoint python3 "$LOCKSTEP_IMAGE" -m app progress ${command#train}
}

# Runs a command. Traps of this script run at once, not only when the command ends.
attend() {
    begin "$@"
    wait "$ATTENDED"
}

# Starts a command as its own process group (set -m), which can be ended with all its children.
begin() {
    set -m
    "$@" 9>&- &
    ATTENDED=$!
    set +m
}

end_early() {
    local code=$1
    trap '' INT TERM HUP PIPE
    [[ ! -t 1 ]] || printf '\033[?25h\n' || true # the progress bar has hidden the cursor
    end_attended
    if [[ $CLAIM ]]; then
        say 'Stopping the containers' || true # standard error may be closed
        end_run
    fi
    exit "$code"
}

# `prepare` is stopped first, because it may be about to name the run.
end_run() {
    [[ $RUN_FOLDER ]] || { docker stop "$(container_of prepare)" >/dev/null 2>&1 || true; find_run; }
    remove_containers
    remove_empty_run
    report_saved_state || true
}

report_saved_state() {
    [[ $(given RESUME) == never || ! $(find "$RUN_FOLDER" -path '*/checkpoint/step-*/commit.json' -print -quit 2>/dev/null) ]] ||
        grep -qs '"complete": true' "$RUN_FOLDER/summary.json" || say 'A checkpoint is saved. The same command resumes this run.'
}

# Ends the attended command with all its children, after giving it time to clean up.
end_attended() {
    local look
    [[ ${ATTENDED:-} ]] && kill -- "-$ATTENDED" 2>/dev/null || return 0
    for ((look = 0; look < END_LOOKS; look++)); do
        kill -0 -- "-$ATTENDED" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -KILL -- "-$ATTENDED" 2>/dev/null || true
}

# Workers that were killed by a signal and, if no rank wrote a record, those that exited before rank 0: the first few,
# with their last lines.
report_dead_workers() {
    local rank0_ended records ended code container name output how count=0
    rank0_ended=$(docker inspect --format '{{.State.FinishedAt}}' "$(container_of rank0)")
    records=$(find "$RUN_FOLDER" -maxdepth 1 -name 'rank-*.jsonl' -size +0 -newer "$CLAIM" 2>/dev/null) || true
    while read -r ended code container name; do
        ((code != 143)) || [[ ! $(hopeless) ]] || continue # stopped by this script
        output=$(docker logs --tail "$LAST_LINES" "$container" 2>&1)
        if ((code > 128)); then
            how="was killed by $(name_of_signal $((code - 128)))"
        elif [[ ! $records && $ended < $rank0_ended && $output != *'rank 0 ended the join'* ]]; then
            how='exited before rank 0'
        else
            continue # a consequence of another failure
        fi
        say "$name $how with exit code $code. Its last lines:"
        printf '%s\n' "${output:-(it printed nothing)}" | sed 's/^/    /' >&2
        ((++count < MOST_TOLD)) || break
    done < <(ended_workers)
}

# Exited workers in the order of their exits: time, exit code, container, name.
ended_workers() {
    local container
    for container in $(container_of worker); do
        docker inspect --format '{{if eq .State.Status "exited"}}{{.State.FinishedAt}} {{.State.ExitCode}} {{.Id}} {{slice .Name 1}}{{end}}' "$container"
    done | sed '/^$/d' | sort
}

name_of_signal() { local name; name=$(kill -l "$1" 2>/dev/null) && echo "SIG$name" || echo "signal $1"; }

# The engine may still be processing an interrupted command, so this repeats.
remove_containers() {
    local attempt
    for attempt in 1 2 3; do
        quietly docker compose --progress quiet down --remove-orphans || ((attempt < 3))
        if [[ ! $(docker ps --all --quiet --filter "label=com.docker.compose.project=$(project_name)") ]]; then
            remove_key
            return 0 # a bare return in a trap would take the status from before the signal
        fi
    done
    warn "cannot remove all containers of project $(project_name). Run scripts/down to remove them."
}

# With BACKEND=mpi each start has a volume for its key. Rank 0 empties it, unless it was killed.
remove_key() { docker volume rm --force "$(project_name)_key" >/dev/null 2>&1 || true; }

remove_empty_run() { rmdir "$RUN_FOLDER" 2>/dev/null || true; }

# After a training run the stopped containers stay, so that their output can be read. After other commands they are
# removed: their workers print only errors, which are shown here.
explain_failure() {
    local code=$1 container
    [[ $RANK_COMMAND != train ]] || report_dead_workers # before the others are stopped
    quietly docker compose --progress quiet stop
    for container in $(docker compose ps --all --quiet); do
        docker inspect --format '{{if .State.OOMKilled}}{{.Name}} ran out of memory. Raise or unset RANK_MEMORY.{{end}}' \
            "$container" | sed -n 's|^/||p' >&2
    done
    if [[ $RANK_COMMAND != train ]]; then
        for container in $(container_of worker); do
            docker logs "$container" >&2
        done
        return
    fi
    # Rank 0 itself may have been killed, and the others may have written more records since it failed.
    of_image --volumes-from "$(container_of rank0)" "$LOCKSTEP_IMAGE" report || true
    remove_empty_run
    [[ $(hopeless) ]] || report_saved_state
    say "Rank 0 exited with code $code. To read the output of all ranks: docker compose --project-name $(project_name) logs. To remove the containers: scripts/down"
    exit "$code"
}
