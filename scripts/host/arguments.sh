# shellcheck shell=bash
# Arguments of the scripts: --help, settings, and refusals that suggest what was probably meant.

USAGE=''     # of this script
ARGUMENTS=() # as it was called
OPTIONS=() SETTINGS=() WORDS=() # the same, sorted: --NAME or --NAME=value, NAME=value, the others

# Prints the usage, or with --help GROUP the settings of a group, if --help is among the arguments.
answer_help() {
    while (($#)); do
        case $1 in
            -h | --help)
                show_help "${2:-}"
                exit
                ;;
        esac
        shift
    done
}

show_help() {
    local topic=$1 groups
    if [[ $USAGE != *@settings* ]]; then
        printf '%s\n' "$USAGE"
    elif [[ ! $topic || $topic == -* || $topic == *=* ]]; then
        groups=$(groups_of_settings | awk -F ': ' '{ printf "  %-11s %s\n", $1, substr($0, length($1) + 3) }')
        printf '%s' "${USAGE%@settings*}" 'Arguments take precedence over the environment, and the environment over .env. Groups of settings:

' "$groups" "

scripts/${0##*/} --help GROUP prints the settings of a group, --help settings prints all.${USAGE#*@settings}
"
    else
        mapfile -t groups < <(groups_of_settings | cut -d : -f 1 && echo settings)
        [[ " ${groups[*]} " == *" $topic "* ]] || refuse_name 'help topic' "$topic" "${groups[@]}"
        list_settings "$topic"
    fi
}

# "NAME: meaning", one a line.
groups_of_settings() { sed -n 's/^## //p' .env.example; }

# The settings of a group, or all, with defaults and meanings.
list_settings() {
    awk -v wanted="$1" '
        /^## / { shown = wanted == "settings" || $2 == wanted ":"; if (shown) print substr($0, 4) }
        /^# / { meaning = meaning "\n    " substr($0, 3); next }
        /^#[A-Z_0-9]+=/ && shown { print "\n  " substr($0, 2) meaning }
        { meaning = "" }' .env.example
}

# Sorts ARGUMENTS, and refuses what the script does not accept. It accepts the options listed here (--NAME= takes a value),
# settings if NAME=value is listed, and other words if one is listed, such as GRID.
sort_arguments() {
    local accepted=" $* " options=() words='' each
    for each in "$@"; do
        if [[ $each == *[-=]* ]]; then options+=("${each%=}"); else words=yes; fi
    done
    set -- "${ARGUMENTS[@]}"
    while (($#)); do
        if [[ $1 == -* && $accepted == *" ${1%%=*}= "* ]]; then
            [[ $1 == *=* ]] || { need_value "$@" && set -- "$1=$2" "${@:3}"; }
            OPTIONS+=("$1")
        elif [[ $1 != -* && $accepted == *' NAME=value '* && ($1 == *=* || ! $words) ]]; then
            check_setting "$1"
            SETTINGS+=("$1")
        elif [[ $1 =~ ^[A-Z_]+= ]]; then
            refuse unknown-argument "unexpected argument '$(shown "$1")': this script takes no settings. Omit it."
        elif [[ $1 != -* && $words ]]; then
            WORDS+=("$1")
        else
            [[ $accepted == *" $1 "* ]] || refuse_option "$1" "${options[@]}"
            OPTIONS+=("$1")
        fi
        shift
    done
}

# Whether this option was given.
chosen() { [[ " ${OPTIONS[*]} " == *" $1 "* ]]; }

take_arguments() {
    local argument
    for argument in "$@"; do
        check_setting "$argument"
        export "${argument%%=*}=${argument#*=}"
    done
}

# Refuses what is not NAME=value with the name of a setting.
check_setting() {
    local argument=$1 name=${1%%=*} known near
    [[ $argument != -* ]] || refuse_option "$argument" NAME=value
    mapfile -t known < <(known_settings)
    if [[ $argument != *=* ]]; then
        near=$(nearest "$name" "${known[@]}")
        refuse unknown-argument "unexpected argument '$(shown "$argument")'. Settings are written NAME=value: $(example "${near:-SYNC_MODE}" "$argument")"
    fi
    [[ $name =~ ^[A-Za-z_][A-Za-z_0-9]*$ ]] ||
        refuse unknown-setting "invalid setting name '$(shown "$name")'. Use only letters, digits and '_', as in SYNC_MODE=ddp."
    [[ $name != COMPOSE_PROJECT_NAME && " ${known[*]} " != *" $name "* ]] || return 0
    ! settings_of_launcher | grep -qx -- "$name" ||
        refuse unknown-setting "$name cannot be set here: the cluster assigns ranks and resolves rank 0's address itself. Omit it. To change the number of ranks, set WORKERS."
    near=$(nearest "$name" "${known[@]}")
    refuse unknown-setting "unknown setting $(shown "$name").${near:+ Did you mean $near?} scripts/up --help lists the groups of settings."
}

# How a setting is written, with the value that followed an option of its name: --workers 7.
example() {
    local name=$1 option=$2 value='' position
    if [[ $option == *=* ]]; then
        value=${option#*=}
    else
        for position in "${!ARGUMENTS[@]}"; do
            [[ ${ARGUMENTS[position]} != "$option" ]] || value=${ARGUMENTS[position + 1]:-}
        done
    fi
    [[ $value != -* && $value != *=* ]] || value=''
    [[ $value || $name != SYNC_MODE ]] || value=ddp
    printf '%s=%s' "$name" "$(shown "${value:-...}")"
}

# Refuses an unknown option. The others are those that the script has; NAME=value among them stands for settings.
refuse_option() {
    local option=$1 near settings=()
    shift
    [[ $option == -* ]] || refuse unknown-argument "unexpected argument '$(shown "$option")'. Choose from: $(list_of "$@" --help)."
    [[ " $* " != *' NAME=value '* ]] || mapfile -t settings < <(known_settings)
    near=$(nearest "${option%%=*}" "$@" "${settings[@]}")
    if [[ $near == [A-Z]* ]]; then
        refuse unknown-option "unknown option '$(shown "${option%%=*}")'. Settings are written NAME=value: $(example "$near" "$option")"
    fi
    refuse unknown-option "unknown option '$(shown "$option")'. Choose from: $(list_of "$@" --help).${near:+ Did you mean $near?}"
}

# Refuses a name that is none of its kind; the others are the known ones.
refuse_name() {
    local kind=$1 name=$2 near
    shift 2
    near=$(nearest "$name" "$@")
    refuse unknown-name "unknown $kind '$(shown "$name")'. Choose from: $(list_of "$@").${near:+ Did you mean $near?}"
}

list_of() { local all && all=$(printf '%s, ' "$@") && printf '%s' "${all%, }"; }

need_value() { (($# > 1)) || refuse missing-argument "$1 needs a value. --help shows an example."; }

# The word that a misspelt one resembles most; nothing if none is near. Only letters and digits count. A word is near if
# it differs in a third of them at most, or if one of the two contains the other.
nearest() {
    local word=$1
    shift
    printf '%s\n' "$@" | WORD=${word:0:LONGEST_SHOWN} awk '
        function letters(text) { text = tolower(text); gsub(/[^a-z0-9]/, "", text); return text }
        function least(a, b) { return a < b ? a : b }
        # Edit distance, in which two neighbours that swapped places count once.
        function distance(a, b,    i, j, same, d) {
            for (i = 0; i <= length(a); i++) d[i, 0] = i
            for (j = 0; j <= length(b); j++) d[0, j] = j
            for (i = 1; i <= length(a); i++)
                for (j = 1; j <= length(b); j++) {
                    same = substr(a, i, 1) == substr(b, j, 1)
                    d[i, j] = least(least(d[i - 1, j], d[i, j - 1]) + 1, d[i - 1, j - 1] + !same)
                    if (i > 1 && j > 1 && substr(a, i, 1) == substr(b, j - 1, 1) && substr(a, i - 1, 1) == substr(b, j, 1))
                        d[i, j] = least(d[i, j], d[i - 2, j - 2] + 1)
                }
            return d[length(a), length(b)]
        }
        BEGIN { own = letters(ENVIRON["WORD"]); best = 1000 }
        {
            other = letters($0)
            longest = length(own) > length(other) ? length(own) : length(other)
            away = distance(own, other)
            contained = length(own) > 2 && length(other) > 2 && (index(own, other) || index(other, own))
            if ((contained || 3 * away <= longest) && longest && away < best) { best = away; found = $0 }
        }
        END { if (found != "") print found }'
}
