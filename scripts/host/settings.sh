# shellcheck shell=bash
# Settings from the environment and .env, and the checks that must come before the image is built.
# The program generates settings.table: the names of all settings, and the rules of those that are checked here.

UNNAMED=no-name-is-given # the project's name that Compose gives back where neither .env nor the environment has one
READ_BY_COMPOSE=''       # the settings in .env, as JSON, once Compose has read it

# All that users set.
known_settings() { awk -F '\t' '/^[A-Z]/ && $2 != "launcher" { print $1 }' scripts/host/settings.table; }

# Those that the cluster gives to each rank.
settings_of_launcher() { awk -F '\t' '$2 == "launcher" { print $1 }' scripts/host/settings.table; }

# Those that Compose or a script consumes.
settings_of_compose() { awk -F '\t' '/^[A-Z]/ && NF > 2 { print $1 }' scripts/host/settings.table; }

# Those without meaning where ranks do not average.
settings_of_averaging() { awk -F '\t' '$2 == "averaging" { print $1 }' scripts/host/settings.table; }

default_of() { column 3 "$1"; }
remedy_of() { column 7 "$1"; }
column() { awk -F '\t' -v column="$1" -v name="$2" '$1 == name { print $column }' scripts/host/settings.table; }

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
        refuse invalid-dotenv "cannot parse .env: ${READ_BY_COMPOSE##*$'\n'}. Write each line as NAME=value, as in .env.example."
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
            refuse invalid-setting "invalid $name '$(shown "$value")'. $(remedy_of "$name")"
    done
    world_size=$(given WORLD_SIZE)
    ranks=$(number_of_ranks)
    [[ ! $world_size =~ ^[0-9]{1,9}$ ]] || ((10#$world_size == ranks)) ||
        refuse conflicting-settings "WORLD_SIZE=$world_size contradicts WORKERS=$(setting WORKERS), which makes $ranks ranks. Unset WORLD_SIZE."
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
