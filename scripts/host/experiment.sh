# shellcheck shell=bash
# An experiment's runs, one after the other: the image says which run comes next, and reads the results.

REFRESH_SECONDS=1
RESULTS_ROOT=results GRIDS=scripts/experiments # where runs go, and where grid files are
QUICK=() # --quick, for the smaller version of a grid
KEPT='Finished runs are kept: the same command goes on from here.' # after an interrupt
AT_WORK='' # the container of work_on_grids

# Makes all unfinished runs of one experiment. To be called where errors end the script (set -e).
make_runs() {
    local name=$1 folder trial log began code settings ended=()
    folder=$RESULTS_ROOT/experiments/$name/full
    ((${#QUICK[@]} == 0)) || folder=$RESULTS_ROOT/experiments/$name/quick
    while true; do
        settings=$(of_experiment next "$name" "${QUICK[@]}" "${ended[@]}")
        [[ $settings ]] || break
        trial=$(sed -n 's/^RUN_NAME=//p' <<<"$settings")
        log=$folder/$trial.log
        began=$SECONDS code=0
        begin run_trial "$folder" "$settings" >"$log" 2>&1
        tell_while_running "$folder/$trial/rank-0.jsonl" "$began"
        wait "$ATTENDED" || code=$?
        ATTENDED=''
        if ((code == 0)); then
            say "    $((SECONDS - began)) s"
        else
            docker compose logs --no-color >>"$log" 2>&1 || true
            remove_containers
            say "    failed with exit code $code; everything that it printed: $log"
            grep --max-count 3 'error: ' "$log" | sed 's/^/    /' >&2 || true
        fi
        ended=(--ended "$trial" "$code" "$((SECONDS - began))")
    done
}

# The part that runs in the image.
of_experiment() { of_grids experiment "$@"; }

# A command in the image that sees the grid files and the results.
of_grids() {
    # It takes seconds and writes files whole or not at all: Ctrl-C ends the wait for it, but not the command itself.
    with_grids --sig-proxy=false "$LOCKSTEP_IMAGE" "$@"
}

# The same for a command that may take minutes: Ctrl-C ends it.
work_on_grids() {
    local code=0
    AT_WORK=$COMPOSE_PROJECT_NAME-grids-$$
    begin with_grids --name "$AT_WORK" "$LOCKSTEP_IMAGE" "$@"
    wait "$ATTENDED" || code=$?
    ATTENDED='' AT_WORK=''
    return "$code"
}

with_grids() {
    of_image --volume "$PWD/$RESULTS_ROOT:/lockstep/results" --volume "$PWD/$GRIDS:/lockstep/experiments:ro" "$@"
}

# One run of the cluster with exactly these settings, whatever the environment and .env hold.
run_trial() {
    local folder=$1 settings=$2 name
    for name in $(known_settings); do
        of_this_machine "$name" || export "$name="
    done
    while IFS= read -r name; do
        export "${name?}"
    done <<<"$settings"
    export RESULTS_FOLDER=./$folder RESUME=never CHECKPOINT_EVERY=0 MAX_RESTARTS=0 # each run is made in one go, or made again
    run_ranks "prepare --neighbours=$(neighbours)" train
}

# On a terminal: shows the progress of the current run.
tell_while_running() {
    local records=$1 began=$2 steps
    [[ -t 2 ]] || return 0
    while kill -0 "$ATTENDED" 2>/dev/null; do
        steps=$(grep --count '"kind": "step"' "$records" 2>/dev/null) || steps=0
        printf '\r    %d s, step %d ' $((SECONDS - began)) "$steps" >&2
        sleep "$REFRESH_SECONDS" 9>&- & # only to look again; a signal ends the wait at once
        wait $! || true
    done
    printf '\r\033[K' >&2
}

# Ends the current run as Ctrl-C ends scripts/up. The run counts as not made.
leave_experiment() {
    local code=$1
    trap '' INT TERM HUP
    [[ ! -t 2 ]] || printf '\r\033[K' >&2
    if [[ ${ATTENDED:-} ]] && kill -TERM "$ATTENDED" 2>/dev/null; then
        say 'Stopping'
        # After the signal: what had not started by then does not, and what had would not end by it.
        [[ ! $AT_WORK ]] || docker rm --force "$AT_WORK" >/dev/null 2>&1 || true
        wait "$ATTENDED" || true
    fi
    say "Interrupted.${KEPT:+ $KEPT}"
    exit "$code"
}

# Settings that may come from outside the grid file, because they say nothing about the runs.
of_this_machine() { [[ $1 == NETWORK_PREFIX || $1 == DATA_FOLDER ]]; }

# A setting from outside the grid file would silently change the experiment.
warn_of_unused_settings() {
    local name
    for name in $(known_settings); do
        if ! of_this_machine "$name" && [[ $(given "$name") ]]; then
            warn "$name is set, and not used: an experiment takes settings only from its file and from arguments."
        fi
    done
}
