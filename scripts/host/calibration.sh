# shellcheck shell=bash
# Measurements that a calibration lacks, made when a prediction needs them.

# The arguments are the command in the image that prints the calibration and each model that it lacks.
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

# On one rank, with two batch sizes: calibration, model.
measure_model() {
    # shellcheck disable=SC2034 # of_grids and make_runs read them
    local RESULTS_ROOT=results/calibrations/$1 GRIDS=scripts/calibration QUICK=()
    say "MODEL=$2 is not in calibration '$1'. Measuring it on one rank, which takes about half a minute"
    of_experiment plan model --fresh --set "MODEL=$2"
    make_runs model
    work_on_grids calibrate "$1" --model "$2"
}
