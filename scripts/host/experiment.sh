# shellcheck shell=bash
# The runs of an experiment. The image chooses the next run and reads the results; the host only runs it.

CLUSTER_LOG=cluster.log # beside the runs: what starting them printed, and after a failure what every container did
RESULTS_ROOT=results GRIDS=scripts/experiments # the folders of runs and of grid files
QUICK=() # --quick, for the smaller version of a grid
GIVEN=() # --set NAME=value..., to override the grid file
KEPT='Finished runs are kept. The same command resumes.' # after an interrupt
AT_WORK='' # the container of work_on_grids

experiments() {
    local files=(scripts/experiments/*.toml)
    files=("${files[@]##*/}")
    printf '%s\n' "${files[@]%.toml}"
}

# Name, title and rounds of each experiment, which are among its first lines.
list_experiments() {
    local name title repeats
    for name in $(experiments); do
        title=$(sed -n 's/^title *= *"\(.*\)".*/\1/p; /^\[/q' "scripts/experiments/$name.toml")
        repeats=$(sed -n 's/^repeats *= *\([0-9]*\).*/\1/p; /^\[/q' "scripts/experiments/$name.toml")
        printf '%-15s %s: %s round%s\n' "$name" "$title" "${repeats:-1}" "$( ((${repeats:-1} == 1)) || echo s)"
    done
}

check_experiment() {
    local known
    mapfile -t known < <(experiments)
    [[ " ${known[*]} " == *" $1 "* ]] || refuse_name experiment "$1" "${known[@]}"
}

ready_grids() {
    on_signals leave_experiment
    ready_project
    check_data_folder
}

ready_runs() {
    warn_of_unused_settings
    check_against_engine
    claim_project
    build_image
}

# Makes all unfinished runs of one experiment. To be called where errors end the script (set -e).
make_runs() {
    local name=$1 folder began code lines settings ended=()
    folder=$RESULTS_ROOT/experiments/$name/full
    ((${#QUICK[@]} == 0)) || folder=$RESULTS_ROOT/experiments/$name/quick
    : >"$folder/$CLUSTER_LOG"
    while true; do
        settings=$(of_experiment next "$name" "${QUICK[@]}" --folder "$folder" "${ended[@]}")
        [[ $settings ]] || break
        began=$SECONDS code=0 lines=$(wc -l <"$folder/$CLUSTER_LOG")
        begin run_series "$folder" "$settings" 2>>"$folder/$CLUSTER_LOG"
        wait "$ATTENDED" || code=$?
        ATTENDED=''
        if ((code != 0)); then
            docker compose logs --no-color >>"$folder/$CLUSTER_LOG" 2>&1 || true
            remove_containers
            tail -n "+$((lines + 1))" "$folder/$CLUSTER_LOG" | sed -n '/ran out of memory/s/^/    /p' >&2
        fi
        ended=(--ended "$code" $((SECONDS - began + 1)))
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
    with_own --volume "$PWD/$RESULTS_ROOT:/lockstep/results" --volume "$PWD/$GRIDS:/lockstep/experiments:ro" "$@"
}

# The runs that `next` has planned, in containers with exactly these settings, whatever the environment and .env hold.
run_series() {
    local folder=$1 settings=$2 name
    for name in $(known_settings); do
        of_this_machine "$name" || export "$name="
    done
    while IFS= read -r name; do
        export "${name?}"
    done <<<"$settings"
    export RESULTS_FOLDER=./$folder MAX_RESTARTS=0
    if [[ $(given BACKEND) == mpi ]]; then
        run_ranks "prepare --neighbours=$(neighbours)" train >"$folder/$RUN_NAME.log" 2>&1
    else
        run_ranks "prepare --series --neighbours=$(neighbours)" 'train --series'
    fi
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

# Exports the settings of this machine. The others override those of the grid file, in GIVEN.
take_grid_arguments() {
    local setting
    ! chosen --quick || QUICK=(--quick)
    # shellcheck disable=SC2153 # arguments.sh sets it
    for setting in "${SETTINGS[@]}"; do
        if of_this_machine "${setting%%=*}"; then take_arguments "$setting"; else GIVEN+=("$setting"); fi
    done
    ((${#GIVEN[@]} == 0)) || GIVEN=(--set "${GIVEN[@]}")
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
