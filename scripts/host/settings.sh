# shellcheck shell=bash
# Settings from arguments and the environment, and the checks of those that Compose itself consumes.

MOST_WORKERS=100
LEAST_MEMORY_MEBIBYTES=128

# All names, as the program lists them.
known_settings() { sed -n 's/^#\([A-Z_]*\)=.*/\1/p' .env.example; }

# All of them with their meanings and defaults, for --help.
list_settings() { sed -n '/^# Made by/,$ { /^# Made by/d; p }' .env.example; }

# Exports NAME=value arguments; refuses every other.
take_arguments() {
    local argument name near
    for argument in "$@"; do
        name=${argument%%=*}
        [[ $argument == *=* ]] || refuse "'$argument' is not a setting. Write NAME=value, such as SYNC_MODE=all_reduce; --help lists them."
        if ! known_settings | grep -qx -- "$name"; then
            near=$(nearest "$name" 99)
            refuse "$name is not a setting of the cluster. Nearest: ${near%% *}. --help lists all."
        fi
        export "$name=${argument#*=}"
    done
}

# Warns of variables, in the environment or in .env, that look like a setting written wrong.
warn_of_near_misses() {
    local near name
    while read -r near name; do
        warn "$name is set, and is not a setting. Was $near meant?"
    done < <({ compgen -e; dotenv_names; } | sort -u | near_misses 1)
}

dotenv_names() { [[ ! -r .env ]] || sed -n 's/^\([A-Za-z_][A-Za-z_0-9]*\)=.*/\1/p' .env; }

nearest() { echo "$1" | near_misses "$2"; }

# For each name on standard input that is no setting: the nearest setting and the name, if at most $1 edits apart.
# An edit is a letter put in, left out, changed, or two that changed places.
near_misses() {
    awk -v most="$1" '
        function least(a, b) { return a < b ? a : b }
        function edits(a, b,    i, j, d) {
            for (i = 0; i <= length(a); i++) d[i, 0] = i
            for (j = 0; j <= length(b); j++) d[0, j] = j
            for (i = 1; i <= length(a); i++) for (j = 1; j <= length(b); j++) {
                same = substr(a, i, 1) == substr(b, j, 1)
                d[i, j] = least(least(d[i-1, j], d[i, j-1]) + 1, d[i-1, j-1] + !same)
                if (i > 1 && j > 1 && substr(a, i, 1) == substr(b, j-1, 1) && substr(a, i-1, 1) == substr(b, j, 1))
                    d[i, j] = least(d[i, j], d[i-2, j-2] + 1)
            }
            return d[length(a), length(b)]
        }
        FNR == NR { known[$1]; next }
        $1 in known { next }
        {
            best = most + 1
            for (setting in known) {
                gap = length(setting) - length($1)
                if (gap > most || -gap > most) continue
                distance = edits(toupper($1), setting)
                if (distance < best || (distance == best && setting < near)) { best = distance; near = setting }
            }
            if (best <= most) print near, $1
        }' <(known_settings) -
}

# A setting's value: from the environment, else from .env, else the one given.
setting() {
    local name=$1 default=$2 line
    if [[ ${!name:-} ]]; then
        echo "${!name}"
    elif [[ -r .env ]] && line=$(grep -E "^$name=." .env | tail -n 1); then
        line=${line#*=}
        line=${line#[\"\']}
        echo "${line%[\"\']}"
    else
        echo "$default"
    fi
}

# Compose would fail on these in its own words, or worse.
check_compose_settings() {
    local workers world_size cpus memory prefix
    workers=$(setting WORKERS 3)
    { [[ $workers =~ ^[0-9]{1,3}$ ]] && ((10#$workers <= MOST_WORKERS)); } ||
        refuse "WORKERS=$workers: not allowed. Allowed: a whole number, 0 to $MOST_WORKERS, of ranks beside rank 0."
    world_size=$(setting WORLD_SIZE '')
    [[ ! $world_size =~ ^[0-9]{1,9}$ ]] || ((10#$world_size == 10#$workers + 1)) ||
        refuse "WORLD_SIZE=$world_size with WORKERS=$workers: that makes $((10#$workers + 1)) ranks. WORKERS alone is enough."
    cpus=$(setting RANK_CPUS '')
    [[ -z $cpus || ($cpus =~ ^([0-9]+\.?[0-9]*|\.[0-9]+)$ && ! $cpus =~ ^[0.]+$) ]] ||
        refuse "RANK_CPUS=$cpus: not allowed. Allowed: a number of CPUs, more than 0, such as 0.5."
    memory=$(setting RANK_MEMORY '')
    [[ -z $memory || $memory =~ ^[1-9][0-9]*[kmgKMG][bB]?$ ]] ||
        refuse "RANK_MEMORY=$memory: not allowed. Allowed: a whole number with k, m or g, such as 2g."
    [[ -z $memory ]] || (($(in_mebibytes "$memory") >= LEAST_MEMORY_MEBIBYTES)) ||
        refuse "RANK_MEMORY=$memory: not allowed. Allowed: ${LEAST_MEMORY_MEBIBYTES}m or more, without which no rank can start."
    prefix=$(setting NETWORK_PREFIX 10.77.1)
    is_prefix "$prefix" ||
        refuse "NETWORK_PREFIX=$prefix: not allowed. Allowed: the first three numbers of an IPv4 network, such as 10.77.1."
}

in_mebibytes() {
    local number=${1%%[!0-9]*}
    case ${1#"$number"} in
        [kK]*) echo $((10#$number / 1024)) ;;
        [mM]*) echo $((10#$number)) ;;
        *) echo $((10#$number * 1024)) ;;
    esac
}

is_prefix() {
    [[ $1 =~ ^([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})$ ]] || return
    local first=${BASH_REMATCH[1]} second=${BASH_REMATCH[2]} third=${BASH_REMATCH[3]}
    ((10#$first >= 1 && 10#$first <= 223 && 10#$first != 127 && 10#$second <= 255 && 10#$third <= 255))
}
