# shellcheck shell=bash
# Times whole starts of the cluster, as users make them: scripts/up with a small model.

MOST_STARTED=101 # ranks, as WORKERS allows
FEW_STEPS=2

# Starts each number of ranks in turn, round after round. The image computes the duration of each stage.
time_startup() {
    local round ranks folder noted=() file
    ((BASH_VERSINFO[0] >= 5)) || fail outdated-software "bash $BASH_VERSION is too old: scripts/benchmark startup needs 5.0 or newer, for a clock with fractions of a second. Install a newer one (macOS: brew install bash)."
    read_startup_options "$@"
    temporary_file file
    for ((round = 1; round <= ROUNDS; round++)); do
        for ranks in "${RANKS[@]}"; do
            folder=startup-$(date -u +%Y%m%d-%H%M%S)
            say "round $round of $ROUNDS: $ranks ranks"
            attend stamp_start "$ranks" "$folder" "$file" || fail run-failed "scripts/up failed. Its last lines:"$'\n'"$(tail -n "$LAST_LINES" "$file")"
            noted+=("benchmarks/$folder:$ranks$(sed -n 's/^stage //p' "$file" | paste -sd '')")
        done
    done
    by_itself startup "${noted[@]}"
}

read_startup_options() {
    local option='' word
    RANKS=() ROUNDS=3
    for word in "$@"; do
        [[ $word =~ ^[1-9][0-9]{0,2}$ ]] || option=$word
        case $option/$word in
            --ranks/--ranks | --rounds/--rounds) ;;
            --ranks/*) RANKS+=("$word") ;;
            --rounds/*) ROUNDS=$word ;;
            *) refuse invalid-argument "invalid value '$word'. Write --ranks N... and --rounds K with whole numbers from 1." ;;
        esac
    done
    ((${#RANKS[@]})) || RANKS=(2 4 8 16)
    for word in "${RANKS[@]}"; do
        ((word <= MOST_STARTED)) || refuse invalid-argument "invalid --ranks '$word'. Give 1 to $MOST_STARTED."
    done
}

# Writes the output of a start to a file, with the seconds elapsed after each line that ends a stage.
stamp_start() {
    local ranks=$1 folder=$2 file=$3 model began line
    mkdir -p results/benchmarks
    model=$(given MODEL)
    began=${EPOCHREALTIME/,/.}
    RESULTS_FOLDER=$PWD/results/benchmarks RESUME=never CHECKPOINT_EVERY=0 MAX_RESTARTS=0 MODEL=${model:-lenet5} MAX_STEPS=$FEW_STEPS EVALUATE=never \
        WORKERS=$((ranks - 1)) RUN_NAME=$folder scripts/up 2>&1 | {
        trap '' INT TERM HUP # scripts/up still prints while it exits
        while read -r line; do
            printf '%s\n' "$line"
            case $line in results/* | *' joined:' | '0 loss: '*) stamp "$began" ;; esac
        done
        stamp "$began"
    } >"$file"
}

stamp() { awk -v began="$1" -v now="${EPOCHREALTIME/,/.}" 'BEGIN { printf "stage :%.3f\n", now - began }'; }
