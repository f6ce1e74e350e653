# shellcheck shell=bash
# What a calibration lacks is measured when a prediction needs it.

# Measures the models that a calibration lacks; the arguments are the command in the image that prints them.
measure_lacking_models() {
    local lacking each
    lacking=$(of_grids "$@")
    [[ $lacking ]] || return 0
    check_against_engine
    claim_project
    mapfile -t lacking <<<"$lacking"
    for each in "${lacking[@]}"; do
        measure_model "${each% *}" "${each#* }"
    done
}

# On one rank, with two batches: calibration, model.
measure_model() {
    # shellcheck disable=SC2034 # of_grids and make_runs look there
    local RESULTS_ROOT=results/calibrations/$1 GRIDS=scripts/calibration QUICK=()
    say "MODEL=$2 is not in calibration '$1': it is measured on one rank, which takes half a minute or so"
    of_experiment plan model --fresh --set "MODEL=$2"
    make_runs model
    work_on_grids calibrate "$1" --model "$2"
}
