# shellcheck shell=bash
# The runs of an experiment. The image chooses the next run and reads the results; the host only runs it.

REFRESH_SECONDS=1
RESULTS_ROOT=results GRIDS=scripts/experiments # the folders of runs and of grid files
QUICK=() # --quick, for the smaller version of a grid
KEPT='Finished runs are kept. The same command resumes.' # after an interrupt
AT_WORK='' # the container of work_on_grids

experiments() {
    local files=(scripts/experiments/*.toml)
    files=("${files[@]##*/}")
    printf '%s\n' "${files[@]%.toml}"
}

# Name, title and rounds of each experiment. TOML's first keys, before any table, are these.
list_experiments() {
    awk '
        function finish() { if (name != "") printf "%-15s %s%s\n", name, title, rounds }
        FNR == 1 { finish(); name = FILENAME; sub(/.*\//, "", name); sub(/[.]toml$/, "", name); title = rounds = ""; table = 0 }
        /^ *\[/ { table = 1 }
        !table && /^title *= *"/ { title = $0; sub(/^[^"]*"/, "", title); sub(/" *(#.*)?$/, "", title) }
        !table && /^repeats *= */ { sub(/^[^=]*= */, ""); sub(/ *(#.*)?$/, ""); rounds = ": " $0 ($0 == 1 ? " round" : " rounds") }
        END { finish() }' scripts/experiments/*.toml
}

check_experiment() {
    local known
    mapfile -t known < <(experiments)
    [[ " ${known[*]} " == *" $1 "* ]] || refuse_name experiment "$1" "${known[@]}"
}

ready_grids() {
    on_signals leave_experiment
    ready_project
    ready_base_image
}

ready_runs() {
    warn_of_unused_settings
    check_against_engine
    claim_project
    build_image
}

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
        show_progress "$folder/$trial/rank-0.jsonl" "$began"
        wait "$ATTENDED" || code=$?
        ATTENDED=''
        if ((code == 0)); then
            say "    $((SECONDS - began)) s"
        else
            docker compose logs --no-color >>"$log" 2>&1 || true
            remove_containers
            say "    failed with exit code $code. Its output: $log"
            grep --max-count 3 'error: ' "$log" | sed 's/^/    /' >&2 || true
        fi
        ended=(--ended "$trial" "$code" "$((SECONDS - began))")
    done
}

of_experiment() { of_grids experiment "$@"; }

# A command in the image that sees the grid files and the results.
of_grids() {
    # It takes seconds and writes files atomically, so Ctrl-C ends only the wait for it.
    with_grids --sig-proxy=false "$LOCKSTEP_IMAGE" "$@"
}

# The same for a command that may take minutes, which Ctrl-C ends.
work_on_grids() {
    local code=0
    AT_WORK=$COMPOSE_PROJECT_NAME-grids-$$
    begin with_grids --name "$AT_WORK" "$LOCKSTEP_IMAGE" "$@"
    wait "$ATTENDED" || code=$?
    ATTENDED='' AT_WORK=''
    return "$code"
}

with_grids() {
    of_image --volume "$PWD/$RESULTS_ROOT:/lockstep/results" --volume "$PWD/$GRIDS:/lockstep/experiments:ro" \
        --volume "$PWD/extensions:/lockstep/extensions:ro" "$@"
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
    export RESULTS_FOLDER=./$folder RESUME=never CHECKPOINT_EVERY=0 MAX_RESTARTS=0 # a run is made in one go, or repeated
    run_ranks "prepare --neighbours=$(neighbours)" train
}

show_progress() {
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

# Ends the current run as Ctrl-C ends scripts/up. The run counts as unfinished.
leave_experiment() {
    local code=$1
    trap '' INT TERM HUP
    [[ ! -t 2 ]] || printf '\r\033[K' >&2
    if [[ ${ATTENDED:-} ]] && kill -TERM "$ATTENDED" 2>/dev/null; then
        say 'Stopping'
        # After the signal, so that a container that has not started yet never does. One that has started ignores the
        # signal.
        [[ ! $AT_WORK ]] || docker rm --force "$AT_WORK" >/dev/null 2>&1 || true
        wait "$ATTENDED" || true
    fi
    say "Interrupted.${KEPT:+ $KEPT}"
    exit "$code"
}

# Settings that may come from outside the grid file, because they do not affect results.
of_this_machine() { [[ $1 == NETWORK_PREFIX || $1 == DATA_FOLDER ]]; }

# A setting from outside the grid file would silently change the experiment.
warn_of_unused_settings() {
    local name
    for name in $(known_settings); do
        if ! of_this_machine "$name" && [[ $(given "$name") ]]; then
            warn "$name is ignored: an experiment takes settings only from its file and from arguments."
        fi
    done
}
