# shellcheck shell=bash
# Times whole starts of the cluster, as users make them: scripts/up with a small model, to its end.

MOST_STARTED=101 # ranks, as WORKERS allows
FEW_STEPS=2

# Starts each number of ranks in turn, round after round, and lets the image tell what the stages took.
time_startup() {
    local round ranks folder noted=() file
    ((BASH_VERSINFO[0] >= 5)) || fail "scripts/benchmark startup needs bash 5, whose clock has fractions of a second, and this is $BASH_VERSION."
    read_startup_options "$@"
    temporary_file file
    for ((round = 1; round <= ROUNDS; round++)); do
        for ranks in "${RANKS[@]}"; do
            folder=startup-$(date -u +%Y%m%d-%H%M%S)
            say "round $round of $ROUNDS: $ranks ranks"
            attend stamp_start "$ranks" "$folder" "$file" || fail "$(tail -n "$LAST_LINES" "$file")"
            noted+=("benchmarks/$folder:$ranks$(sed -n 's/^stage //p' "$file" | paste -sd '')")
        done
    done
    by_itself startup "${noted[@]}"
}

# RANKS and ROUNDS, from --ranks N... and --rounds K.
read_startup_options() {
    local option='' word
    RANKS=() ROUNDS=3
    for word in "$@"; do
        [[ $word =~ ^[1-9][0-9]{0,2}$ ]] || option=$word
        case $option/$word in
            --ranks/--ranks | --rounds/--rounds) ;;
            --ranks/*) RANKS+=("$word") ;;
            --rounds/*) ROUNDS=$word ;;
            *) refuse "'$word' is no option of startup. Allowed: --ranks N... and --rounds K, whole numbers from 1." ;;
        esac
    done
    ((${#RANKS[@]})) || RANKS=(2 4 8 16)
    for word in "${RANKS[@]}"; do
        ((word <= MOST_STARTED)) || refuse "--ranks $word: not allowed. Allowed: 1 to $MOST_STARTED."
    done
}

# Leaves all lines of a start in a file, and after those that end a stage how many seconds had passed.
stamp_start() {
    local ranks=$1 folder=$2 file=$3 model began line
    mkdir -p results/benchmarks
    model=$(given MODEL)
    began=${EPOCHREALTIME/,/.}
    RESULTS_FOLDER=$PWD/results/benchmarks RESUME=never CHECKPOINT_EVERY=0 MAX_RESTARTS=0 MODEL=${model:-lenet5} MAX_STEPS=$FEW_STEPS EVALUATE=never \
        WORKERS=$((ranks - 1)) RUN_NAME=$folder scripts/up 2>&1 | {
        trap '' INT TERM HUP # scripts/up has more to say while it ends
        while read -r line; do
            printf '%s\n' "$line"
            case $line in results/* | *' joined:' | '0 loss: '*) stamp "$began" ;; esac
        done
        stamp "$began"
    } >"$file"
}

stamp() { awk -v began="$1" -v now="${EPOCHREALTIME/,/.}" 'BEGIN { printf "stage :%.3f\n", now - began }'; }
