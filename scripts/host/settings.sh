# shellcheck shell=bash
# Settings from arguments, the environment and .env, and the checks that must come before the image is built.
# The program generates settings.table: the names of all settings, and the rules of those that are checked here.

NEAREST_PATIENCE_SECONDS=10
LONGEST_SHOWN=60 # characters of a wrong value in a message
UNNAMED=no-name-is-given # the project's name that Compose gives back where neither .env nor the environment has one
READ_BY_COMPOSE=''       # the settings in .env, as JSON, once Compose has read it

# All names.
known_settings() { awk -F '\t' '/^[A-Z]/ { print $1 }' scripts/host/settings.table; }

# Those that Compose or a script consumes.
settings_of_compose() { awk -F '\t' '/^[A-Z]/ && NF > 2 { print $1 }' scripts/host/settings.table; }

# Those without meaning where ranks do not average.
settings_of_averaging() { awk -F '\t' '$2 == "averaging" { print $1 }' scripts/host/settings.table; }

default_of() { column 3 "$1"; }
allowed_words_of() { column 7 "$1"; }
column() { awk -F '\t' -v column="$1" -v name="$2" '$1 == name { print $column }' scripts/host/settings.table; }

# All settings with their meanings and defaults, for --help.
list_settings() { sed -n '/^# Made by/,$ { /^# Made by/d; p }' .env.example; }

# Exports NAME=value arguments; refuses every other.
take_arguments() {
    local argument name near
    for argument in "$@"; do
        name=${argument%%=*}
        [[ $argument == *=* ]] || refuse "'$(shown "$argument")' is not a setting. Write NAME=value, such as SYNC_MODE=all_reduce; --help lists all settings."
        [[ $name =~ ^[A-Za-z_][A-Za-z_0-9]*$ ]] ||
            refuse "'$(shown "$name")' is not a setting: a name has letters, digits and '_' only. Write NAME=value, such as SYNC_MODE=all_reduce; --help lists all settings."
        if [[ $name != COMPOSE_PROJECT_NAME ]] && ! known_settings | grep -qx -- "$name"; then
            near=$(nearest "$name") || near=''
            refuse "$(shown "$name") is not a setting of the cluster.${near:+ $near} --help lists all."
        fi
        export "$name=${argument#*=}"
    done
}

# A text for a message: on one line, and not endless.
shown() {
    local text=$1
    ((${#text} <= LONGEST_SHOWN)) || text=${text:0:LONGEST_SHOWN}...
    [[ $text != *[[:cntrl:]]* ]] || text=$(printf '%q' "$text")
    printf '%s' "$text"
}

# A sentence about an unknown name, such as the nearest setting, from the program; fails if there is no engine or no
# image yet.
nearest() {
    timeout "$NEAREST_PATIENCE_SECONDS" docker run --rm --pull never --network none --read-only --cap-drop ALL \
        --entrypoint python3 "lockstep:of-$(name_project && project_name)" -m app nearest -- "$1" 2>/dev/null
}

# The names of all variables in the environment and .env, separated by commas. The program warns of misspelt settings.
variables() { { compgen -e && dotenv_names; } | sort -u | paste -sd , -; }

dotenv_names() {
    [[ ! -r .env ]] || sed -nE 's/^[[:space:]]*(export[[:space:]]+)?([A-Za-z_][A-Za-z_0-9]*)[[:space:]]*[=:].*/\2/p' .env
}

# Lets Compose read .env, because only Compose reads it as Compose does: quotes, comments, ${NAME:-values}. From here
# on `given` knows what it found.
read_dotenv() {
    local names
    [[ -e .env ]] || return 0
    names=$({ known_settings && echo COMPOSE_PROJECT_NAME; } | paste -sd , -)
    READ_BY_COMPOSE=$(docker compose --project-directory . --file - config --format json 2>&1 \
        <<<"{name: $UNNAMED, services: {any: {image: any, environment: [$names]}}}") ||
        refuse ".env: Compose cannot read it: ${READ_BY_COMPOSE##*$'\n'}. Each line is NAME=value, as in .env.example."
}

# A setting's value in the environment, or else in .env; empty if it is in neither.
given() {
    local name=$1 value
    if [[ ${!name+set} ]]; then
        printf '%s\n' "${!name}"
    elif [[ $READ_BY_COMPOSE ]]; then
        value=$(sed -n "s/^ *\"$name\": \"\(.*\)\",\{0,1\}$/\1/p" <<<"$READ_BY_COMPOSE")
        printf '%b\n' "${value//\\\"/\"}"
    fi
}

# The value of a setting that Compose itself reads.
setting() {
    local value
    value=$(given "$1")
    echo "${value:-$(default_of "$1")}"
}

# Compose would fail on wrong values in its own words, or worse.
check_compose_settings() {
    local name value world_size ranks
    for name in $(settings_of_compose); do
        value=$(setting "$name")
        [[ -z $value ]] || allows "$name" "$value" ||
            refuse "$name=$(shown "$value"): not allowed. Allowed: $(allowed_words_of "$name")."
    done
    world_size=$(given WORLD_SIZE)
    ranks=$(number_of_ranks)
    [[ ! $world_size =~ ^[0-9]{1,9}$ ]] || ((10#$world_size == ranks)) ||
        refuse "WORLD_SIZE=$world_size with WORKERS=$(setting WORKERS): that makes $ranks ranks. WORKERS alone is enough."
}

# Whether a value has the pattern of its setting and, where it is a number or an amount of memory, lies within the bounds.
allows() {
    local name=$1 value=$2 pattern least
    pattern=$(column 4 "$name")
    [[ $value =~ ^($pattern)$ ]] || return
    least=$(column 5 "$name")
    [[ -z $least ]] || awk -v value="$value" -v least="$least" -v most="$(column 6 "$name")" 'BEGIN {
        unit = match(value, /[kmgKMG]/) ? index("kmg", tolower(substr(value, RSTART, 1))) : 0
        number = value * 1024 ^ unit
        exit !(least + 0 <= number && number <= most + 0)
    }'
}

# Rank 0 and the workers.
number_of_ranks() { echo $((10#$(setting WORKERS) + 1)); }
