# shellcheck shell=bash
# How every script in scripts/ begins: strict mode, the root of the checkout, --help, the functions.
#
#   . "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/host/verb.sh" [PART]... -- "$@" <<'END'
#   usage: scripts/...
#   END
#
# The standard input is the script's usage. @settings in it becomes the list of the groups of settings.

set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

PARTS=(messages arguments settings engine base_image project image network cluster)
while [[ $1 != -- ]]; do
    PARTS+=("$1")
    shift
done
shift
for part in "${PARTS[@]}"; do
    . "scripts/host/$part.sh"
done
# shellcheck disable=SC2034  # arguments.sh reads them
ARGUMENTS=("$@") USAGE=$(cat)
answer_help "$@"
