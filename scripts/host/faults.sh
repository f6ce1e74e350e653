# shellcheck shell=bash
# Fault injection into real runs. The image plans faults and judges the outcome; the host injects and observes.

STEPS_AFTER_FAULT=3 # by which a run proves that a fault was harmless
CONTAINERS=()       # by rank
UNDER_WAY=()        # processes that inject faults now

# Ends with exit code 1 if any trial went wrong.
make_trials() {
    local folder=$PWD/results/faults/$1
    while true; do
        of_faults next "$1"
        [[ -e $folder/orders ]] || break
        . "$folder/orders" # TRIAL, MOMENT, FAULTS, PAUSED, ENDLESS, patience, and the run's settings
        NOTES=$folder/$TRIAL-seen
        RECORDS=$folder/$TRIAL/rank-0.jsonl
        name_containers
        make_trial
        note_ends
        send_stranger_away
        remove_containers
    done
}

# The part that runs in the image. It sees results/. Ctrl-C ends only the wait for it.
of_faults() { of_image --sig-proxy=false --volume "$PWD/results:/lockstep/results" "$LOCKSTEP_IMAGE" faults "$@"; }

# As Compose numbers them in a new project.
name_containers() {
    local rank
    CONTAINERS=("$(project_name)-rank0-1")
    for ((rank = 1; rank < $(number_of_ranks); rank++)); do CONTAINERS+=("$(project_name)-worker-$rank"); done
}

make_trial() {
    local rank steps
    : >"$NOTES/seen"
    export RESULTS_FOLDER=${NOTES%/*} RANK_COMMAND=train
    run_once "prepare --neighbours=$(neighbours)"
    on_signals end_faults
    start worker rank0 || { remove_containers && fail run-failed 'cannot start the ranks. The reason is above.'; }
    # shellcheck disable=SC2086 # steps, seconds and a file
    if attend at_moment true 0 $MOMENT; then
        note fault
        inject_all
    fi
    if [[ $ENDLESS ]]; then
        steps=$(grep --count '"kind": "step"' "$RECORDS" 2>/dev/null) || true # the file may not exist yet
        attend at_moment true 0 $((steps + STEPS_AFTER_FAULT)) 0 "${RECORDS##*/}" || note missed 'the run took no further steps'
        return
    fi
    await_ends
    ((${#PAUSED[@]} > 0)) || return 0
    note woken
    for rank in "${PAUSED[@]}"; do
        docker unpause "${CONTAINERS[rank]}" >>"$NOTES/injected.log" 2>&1 || note missed "fault not injected: unpause rank $rank"
    done
    await_ends
}

# Runs a command in a rank's container at a moment: some seconds after a file of the run exists and holds a number of
# steps. It waits inside the container, where the delay is short.
at_moment() { # COMMAND RANK [STEPS SECONDS [FILE]]
    docker exec --user 0 "${CONTAINERS[$2]}" timeout "$START_PATIENCE" sh -c '
        until [ ! "$3" ] || [ -e "results/$3" ]; do sleep 0.01; done
        until [ "$1" = 0 ] || [ "$(grep -c "\"kind\": \"step\"" "results/$3")" -ge "$1" ]; do sleep 0.005; done
        sleep "$2"
        '"$1" sh "${3:-0}" "${4:-0}" "${5:+$TRIAL/$5}"
}

inject_all() {
    local fault kind rest
    UNDER_WAY=()
    for fault in "${FAULTS[@]}"; do
        read -r kind rest <<<"$fault"
        # shellcheck disable=SC2086 # a rank, and what else the kind needs
        { "inject_$kind" $rest >>"$NOTES/injected.log" 2>&1 || note missed "fault not injected: $kind rank ${rest%% *}"; } 9>&- &
        UNDER_WAY+=($!)
    done
    wait "${UNDER_WAY[@]}"
}

# All processes but the container's init, which exits with them.
inject_kill() { docker exec --user 0 "${CONTAINERS[$1]}" sh -c 'kill -9 -1'; }

# The same at a moment of its own. It exits with its container.
inject_strike() { at_moment 'kill -9 -1' "$@"; }

# On a busy machine the engine may fail to freeze a container: three attempts.
inject_pause() { docker pause "${CONTAINERS[$1]}" || docker pause "${CONTAINERS[$1]}" || docker pause "${CONTAINERS[$1]}"; }

inject_blink() {
    inject_pause "$1"
    sleep "$2" # the fault itself
    docker unpause "${CONTAINERS[$1]}"
}

inject_disconnect() { docker network disconnect "$(project_name)_ranks" "${CONTAINERS[$1]}"; }

# As the process's own user, who may lower its limits. During the join the process may not exist yet.
inject_disk() {
    # shellcheck disable=SC2016
    docker exec --user 0 "${CONTAINERS[$1]}" sh -c '
        size=$(stat --format=%s "results/$1/rank-$2.jsonl" 2>/dev/null) || size=0
        for attempt in $(seq 100); do
            for status in $(grep -l "^Name:.python3$" /proc/[0-9]*/status); do
                process=${status#/proc/}
                setpriv --reuid="$(stat --format=%u results)" --regid="$(stat --format=%g results)" --clear-groups \
                    prlimit --pid "${process%/status}" --fsize="$size:$size" && exit
            done
            sleep 0.1
        done
        exit 1' sh "$TRIAL" "$1"
}

inject_stranger() { # RANK SECONDS RUBBISH SEED PORT
    docker run --detach --init --network "$(project_name)_ranks" --read-only --cap-drop ALL --user 65534 \
        --name "$(project_name)-stranger" --entrypoint python3 \
        "$LOCKSTEP_IMAGE" -m app faults stranger rank0 "$5" "$3" "$4"
}

# It uses the ranks' network, and is not part of the Compose project.
send_stranger_away() { docker rm --force "$(project_name)-stranger" >/dev/null 2>&1 || true; }

# Waits until all containers that are not paused have exited for good, for at most PATIENCE seconds.
await_ends() {
    local until=$((SECONDS + PATIENCE))
    while [[ $(docker inspect --format '{{.State.Status}}' "${CONTAINERS[@]}") == *@(running|restarting)* ]]; do
        ((SECONDS < until)) || return 0
        sleep "$LOOK_SECONDS"
    done
}

# Records the state and the output of each rank's container, and kills those that still run.
note_ends() {
    local rank
    docker inspect "${CONTAINERS[@]}" >"$NOTES/containers.json"
    docker kill "${CONTAINERS[@]}" >/dev/null 2>&1 || true # most have exited
    for rank in "${!CONTAINERS[@]}"; do
        docker logs "${CONTAINERS[rank]}" >"$NOTES/rank-$rank.log" 2>&1
    done
}

# With the seconds since 1970, on the clock that also times the containers.
note() { echo "${EPOCHREALTIME:-$(date +%s)} $*" >>"$NOTES/seen"; }

# Replaces the one in cluster.sh: shows the output of `prepare` only if it fails.
show_once() {
    [[ $(docker wait "$1") == 0 ]] || docker logs "$1"
}

# Ends a trial at once: none of its results is needed.
end_faults() {
    trap '' INT TERM HUP
    docker kill "${CONTAINERS[@]}" >/dev/null 2>&1 || true
    wait "${UNDER_WAY[@]}" || true # no stranger may start after this
    send_stranger_away
    end_early "$1"
}
