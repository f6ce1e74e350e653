# shellcheck shell=bash
# How every script in scripts/ begins: strict mode, the root of the checkout, --help, the functions, the arguments.
#
#   . "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/host/verb.sh" [PART]... [ACCEPTED]... -- "$@" <<'END'
#   usage: scripts/...
#   END
#
# The standard input is the script's usage. @settings in it becomes the list of the groups of settings. What the script
# accepts, such as --quick --calibration= NAME=value GRID, is sorted into OPTIONS, SETTINGS and WORDS.

set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

PARTS=(messages arguments settings engine base_image project image network cluster) ACCEPTED=()
while [[ $1 != -- ]]; do
    if [[ $1 == [[:lower:]]* ]]; then PARTS+=("$1"); else ACCEPTED+=("$1"); fi
    shift
done
shift
for part in "${PARTS[@]}"; do
    . "scripts/host/$part.sh"
done
# shellcheck disable=SC2034  # arguments.sh reads them
ARGUMENTS=("$@") USAGE=$(cat)
answer_help "$@"
((${#ACCEPTED[@]} == 0)) || sort_arguments "${ACCEPTED[@]}"
