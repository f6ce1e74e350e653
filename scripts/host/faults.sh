# shellcheck shell=bash
# Fault injection into real runs. The image plans faults and judges the outcome; the host injects and observes.

STEPS_AFTER_FAULT=3 # by which a run proves that a fault was harmless
UNDER_WAY=()        # processes that inject faults now

make_trials() {
    local sweep=$1 orders
    while true; do
        orders=$(of_faults next "$sweep")
        [[ $orders ]] || break
        take_orders "$orders"
        NOTES=$PWD/results/faults/$sweep/$TRIAL-seen
        RECORDS=${NOTES%-seen}/rank-0.jsonl
        : >"$NOTES/seen"
        if [[ $RECOVER ]]; then make_recovery; else make_trial; fi
        note_ends
        send_stranger_away
        remove_containers
        of_faults judge "$sweep" "$TRIAL"
    done
}

# The part that runs in the image. It sees results/. Ctrl-C ends only the wait for it.
of_faults() { of_image --sig-proxy=false --volume "$PWD/results:/lockstep/results" "$LOCKSTEP_IMAGE" faults "$@"; }

# Parses the next trial. Settings go into the environment.
take_orders() {
    local line word first rest rank
    FAULTS=() UNHARMED='' KILLS=() RECOVER=''
    while IFS= read -r line; do
        read -r word first rest <<<"$line"
        case $word in
            trial) TRIAL=$first ;;
            moment) STEP=$first DELAY=$rest ;;
            port) PORT=$first ;;
            patience) START_PATIENCE=$first PATIENCE=$rest ;;
            unharmed) UNHARMED=$first ;;
            fault) FAULTS+=("$first $rest") ;;
            recover) RECOVER=$first ;;
            kill) KILLS+=("$first $rest") ;;
            *) export "${line?}" ;; # a setting, whose value may contain spaces
        esac
    done <<<"$1"
    CONTAINERS=() PAUSED=() OTHERS=()
    for ((rank = 0; rank < $(number_of_ranks); rank++)); do CONTAINERS+=("$(container "$rank")"); done
    for rank in "${!CONTAINERS[@]}"; do
        if [[ " ${FAULTS[*]} " == *" pause $rank "* ]]; then
            PAUSED+=("${CONTAINERS[rank]}")
        else
            OTHERS+=("${CONTAINERS[rank]}")
        fi
    done
}

# A rank's container, as Compose numbers them in a new project.
container() { if (($1 == 0)); then echo "$(project_name)-rank0-1"; else echo "$(project_name)-worker-$1"; fi; }

# A run from which ranks are killed and restarted by Docker, to its end.
make_recovery() {
    local each rank seconds steps file
    start_trial
    UNDER_WAY=()
    for each in "${KILLS[@]}"; do
        read -r rank seconds steps file <<<"$each"
        kill_at "$rank" "$seconds" "$steps" "$file" >>"$NOTES/injected.log" 2>&1 9>&- &
        UNDER_WAY+=($!)
    done
    await_last_ends "$RECOVER" "${CONTAINERS[@]}"
    wait "${UNDER_WAY[@]}" || true # they exit with their containers
}

# Kills a rank some seconds after a file of the run exists and holds a number of steps. It waits inside the container,
# where the delay is short.
kill_at() {
    # shellcheck disable=SC2016
    docker exec --user 0 "$(container "$1")" sh -c '
        until [ ! "$1" ] || [ -e "results/$1" ]; do sleep 0.01; done
        until [ "$3" = 0 ] || [ "$(grep -c "\"kind\": \"step\"" "results/$1")" -ge "$3" ]; do sleep 0.005; done
        sleep "$2"
        kill -9 -1' sh "${4:+$TRIAL/$4}" "$2" "$3" || true
}

# Waits until these containers have exited for good, for at most the seconds in the first argument.
await_last_ends() {
    local until=$((SECONDS + $1)) each
    shift
    for each in "$@"; do
        while [[ $(docker inspect --format '{{.State.Status}}' "$each") == @(running|restarting) ]]; do
            ((SECONDS < until)) || return 0
            await_moment "$LOOK_SECONDS"
        done
    done
}

start_trial() {
    export RESULTS_FOLDER=${NOTES%/*} RANK_COMMAND=train
    run_once "prepare --neighbours=$(neighbours)"
    on_signals end_faults
    start worker rank0 || { remove_containers && fail run-failed 'cannot start the ranks. The reason is above.'; }
}

make_trial() {
    local paused
    export RESUME=never CHECKPOINT_EVERY=0 MAX_RESTARTS=0
    start_trial
    if ! await_steps "$STEP" "$START_PATIENCE"; then
        note missed 'its moment'
        return
    fi
    await_moment "$DELAY"
    note fault "$(now)"
    inject_all
    if [[ $UNHARMED ]]; then
        check_unharmed
        return
    fi
    await_ends "$PATIENCE" "${OTHERS[@]}"
    ((${#PAUSED[@]} > 0)) || return 0
    note woken "$(now)"
    for paused in "${PAUSED[@]}"; do
        docker unpause "$paused" >>"$NOTES/injected.log" 2>&1 || note missed "unpause $paused"
    done
    await_ends "$PATIENCE" "${PAUSED[@]}"
}

# Replaces the one in cluster.sh: shows the output of `prepare` only if it fails.
show_once() {
    [[ $(docker wait "$1") == 0 ]] || docker logs "$1"
}

inject_all() {
    local fault kind rank rest
    UNDER_WAY=()
    for fault in "${FAULTS[@]}"; do
        read -r kind rank rest <<<"$fault"
        { "inject_$kind" "$rank" "$rest" >>"$NOTES/injected.log" 2>&1 || note missed "$kind rank $rank"; } 9>&- &
        UNDER_WAY+=($!)
    done
    wait "${UNDER_WAY[@]}"
}

# All processes but the container's init, which exits with them.
inject_kill() { docker exec --user 0 "$(container "$1")" sh -c 'kill -9 -1'; }

# On a busy machine the engine may fail to freeze a container: three attempts.
freeze() { docker pause "$1" || docker pause "$1" || docker pause "$1"; }

inject_pause() { freeze "$(container "$1")"; }

inject_blink() {
    freeze "$(container "$1")"
    sleep "$2" # the fault itself
    docker unpause "$(container "$1")"
}

inject_disconnect() { docker network disconnect "$(project_name)_ranks" "$(container "$1")"; }

# As the process's own user, who may lower its limits. During the join the process may not exist yet.
inject_disk() {
    # shellcheck disable=SC2016
    docker exec --user 0 "$(container "$1")" sh -c '
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

inject_stranger() {
    docker run --detach --init --network "$(project_name)_ranks" --read-only --cap-drop ALL --user 65534 \
        --name "$(project_name)-stranger" --entrypoint python3 \
        "$LOCKSTEP_IMAGE" -m app faults stranger rank0 "$PORT" "$2" "$((10#${TRIAL#trial-}))"
}

# It uses the ranks' network, and is not part of the Compose project.
send_stranger_away() { docker rm --force "$(project_name)-stranger" >/dev/null 2>&1 || true; }

# After a harmless fault the run finishes, or makes further steps until it is stopped.
check_unharmed() {
    if [[ $UNHARMED == stop ]]; then
        await_steps $(($(steps_so_far) + STEPS_AFTER_FAULT)) "$START_PATIENCE" || note stuck
        note stopped "$(now)"
        docker kill --signal TERM "${CONTAINERS[@]}" >/dev/null 2>&1 || true # some may have exited
    fi
    await_ends "$START_PATIENCE" "${CONTAINERS[@]}"
}

# Waits until rank 0 has recorded a number of steps. Fails if that takes too long, or if rank 0 exits before.
await_steps() {
    local steps=$1 until=$((SECONDS + $2))
    while (($(steps_so_far) < steps)); do
        ((SECONDS < until)) && is_running "${CONTAINERS[0]}" || return 1
        await_moment "$LOOK_SECONDS"
    done
}

steps_so_far() {
    local steps
    steps=$(grep --count '"kind": "step"' "$RECORDS" 2>/dev/null) || true
    echo "${steps:-0}" # the file may not exist yet
}

is_running() { [[ $(docker inspect --format '{{.State.Running}}' "$1") == true ]]; }

# Waits until these containers have exited, for at most the seconds in the first argument.
await_ends() {
    local patience=$1 alarm
    shift
    (($#)) || return 0
    begin docker wait "$@" >/dev/null
    sleep "$patience" 9>&- &
    alarm=$!
    wait -n "$ATTENDED" "$alarm" || true
    {
        kill -- "-$ATTENDED" "$alarm" || true
        wait "$ATTENDED" "$alarm" || true
    } 2>/dev/null
}

# Records how each rank exited, and its output. A rank that still runs is recorded as left, and killed.
note_ends() {
    local rank name
    for rank in "${!CONTAINERS[@]}"; do
        name=${CONTAINERS[rank]}
        if is_running "$name"; then
            note left "$rank"
            docker kill "$name" >/dev/null 2>&1 || true
        fi
        note rank "$rank" "$(docker inspect --format '{{.State.ExitCode}} {{.State.StartedAt}} {{.State.FinishedAt}} {{.State.OOMKilled}} {{.RestartCount}}' "$name")"
        docker logs "$name" >"$NOTES/rank-$rank.log" 2>&1
    done
}

note() { echo "$*" >>"$NOTES/seen"; }

# Seconds since 1970, on the clock that also times the containers.
now() { echo "${EPOCHREALTIME:-$(date +%s)}"; }

await_moment() {
    sleep "$1" 9>&- &
    wait $!
}

# Ends a trial at once: none of its results is needed.
end_faults() {
    trap '' INT TERM HUP
    docker kill "${CONTAINERS[@]}" >/dev/null 2>&1 || true
    wait "${UNDER_WAY[@]}" || true # no stranger may start after this
    send_stranger_away
    end_early "$1"
}
