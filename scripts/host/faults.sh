# shellcheck shell=bash
# Faults injected into real runs: the image plans them and judges what was seen; here they are injected and watched.

STEPS_GONE_ON=3 # after a fault that must not harm a run
UNDER_WAY=()    # what injects faults now

# Makes all trials of a plan.
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

# The part that runs in the image. It sees results/. Ctrl-C ends the wait for it, and not the command itself.
of_faults() { of_image --sig-proxy=false --volume "$PWD/results:/lockstep/results" "$LOCKSTEP_IMAGE" faults "$@"; }

# What the image has said of the next trial. Settings go into the environment.
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
            *) export "${line?}" ;; # whose value may have spaces
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

# A rank's container; in a new project Compose numbers them so.
container() { if (($1 == 0)); then echo "$(project_name)-rank0-1"; else echo "$(project_name)-worker-$1"; fi; }

# A run from which ranks are killed, to its end: Docker starts them again.
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
    wait "${UNDER_WAY[@]}" || true # they end with their containers
}

# Kills a rank so many seconds after a file of the run has come, or tells of so many steps: from the inside, where
# nothing comes between.
kill_at() {
    # shellcheck disable=SC2016
    docker exec --user 0 "$(container "$1")" sh -c '
        until [ ! "$1" ] || [ -e "results/$1" ]; do sleep 0.01; done
        until [ "$3" = 0 ] || [ "$(grep -c "\"kind\": \"step\"" "results/$1")" -ge "$3" ]; do sleep 0.005; done
        sleep "$2"
        kill -9 -1' sh "${4:+$TRIAL/$4}" "$2" "$3" || true
}

# Until these containers have ended and will not be started again, or the patience is over.
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
    trap 'end_faults 130' INT
    trap 'end_faults 143' TERM HUP
    start worker rank0 || { remove_containers && fail 'the ranks could not be started; the reason stands above.'; }
}

# One run, from its start to the end of its last process.
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
        see_it_go_on
        return
    fi
    await_ends "$PATIENCE" "${OTHERS[@]}"
    ((${#PAUSED[@]} > 0)) || return 0
    note woken "$(now)"
    for paused in "${PAUSED[@]}"; do
        docker unpause "$paused" >>"$NOTES/injected.log" 2>&1 || note missed "the end of the pause of $paused"
    done
    await_ends "$PATIENCE" "${PAUSED[@]}"
}

# Of `prepare`, in place of all that it prints: what it says where it fails.
show_once() {
    [[ $(docker wait "$1") == 0 ]] || docker logs "$1"
}

# All faults at once, each by its function.
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

# All processes but the container's init, which ends with them.
inject_kill() { docker exec --user 0 "$(container "$1")" sh -c 'kill -9 -1'; }

# On a busy machine the engine may give up freezing a container, which then runs on: three tries.
freeze() { docker pause "$1" || docker pause "$1" || docker pause "$1"; }

inject_pause() { freeze "$(container "$1")"; }

inject_blink() {
    freeze "$(container "$1")"
    sleep "$2" # the fault itself
    docker unpause "$(container "$1")"
}

inject_disconnect() { docker network disconnect "$(project_name)_ranks" "$(container "$1")"; }

# As the process's own user, who may lower its limits. In the join the process may not be there yet.
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

# It holds the ranks' network, and Compose does not know it.
send_stranger_away() { docker rm --force "$(project_name)-stranger" >/dev/null 2>&1 || true; }

# After a fault that must do no harm: the run comes to its end, or goes on until it is told to stop.
see_it_go_on() {
    if [[ $UNHARMED == stop ]]; then
        await_steps $(($(steps_so_far) + STEPS_GONE_ON)) "$START_PATIENCE" || note stuck
        note stopped "$(now)"
        docker kill --signal TERM "${CONTAINERS[@]}" >/dev/null 2>&1 || true # some may have ended
    fi
    await_ends "$START_PATIENCE" "${CONTAINERS[@]}"
}

# Until rank 0 has recorded so many steps; fails if it takes too long or rank 0 ends before.
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
    echo "${steps:-0}" # there may be no file yet
}

is_running() { [[ $(docker inspect --format '{{.State.Running}}' "$1") == true ]]; }

# Until these containers have ended, or the patience is over.
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

# How each rank ended, and what it printed. One that is still there is noted, and killed.
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

# A signal ends this wait at once.
await_moment() {
    sleep "$1" 9>&- &
    wait $!
}

# Ends a trial as Ctrl-C ends scripts/up, and at once: nothing of it is needed any more.
end_faults() {
    trap '' INT TERM HUP
    docker kill "${CONTAINERS[@]}" >/dev/null 2>&1 || true
    wait "${UNDER_WAY[@]}" || true # nobody may come any more
    send_stranger_away
    end_early "$1"
}
