#!/bin/bash
# Data-parallel training, ours beside torch DDP and TensorFlow's MultiWorkerMirroredStrategy, in turn:
#
#   cargo build --release -p meshwork-benches --bin scaling
#   TORCH=venv/bin/python TENSORFLOW=venv2/bin/python benches/peers/training.sh [ROUNDS] [SECONDS]
#
# A Python that is not given is left out; MODELS and WORKERS may name fewer ("large", "1 2"), and
# LIBRARIES others of ours ("ndarray burn candle"). Prints peer,model,workers,samples_per_s for each
# run, then medians, and what each number of workers reaches of as many times one worker's.
set -u
rounds=${1:-3}
seconds=${2:-5}
here=$(cd "$(dirname "$0")" && pwd)
scaling=${SCALING:-${CARGO_TARGET_DIR:-$here/../../target}/release/scaling}
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT

ours() { # library, model, workers
    local name=meshwork option=()
    if [ "$1" != default ]; then
        name=meshwork-$1
        option=(--library "$1")
    fi
    "$scaling" --model "$2" --workers "$3" --seconds "$seconds" --csv "${option[@]}" |
        awk -F, -v OFS=, -v peer="$name" -v model="$2" '$1 != "model" { print peer, model, $2, $3 }'
}

# Two workers that exchange nothing: what the machine alone takes from them.
apart() { # model
    for core in 0 1; do
        taskset -c "$core" "$scaling" --model "$1" --workers 1 --seconds "$seconds" --csv &
    done | awk -F, -v model="$1" '$1 != "model" { sum += $3 } END { print "meshwork-apart," model ",2," sum }'
    wait
}

one_round() {
    local model workers library
    for model in ${MODELS:-small large cnn}; do
        for workers in ${WORKERS:-1 2}; do
            ours default "$model" "$workers"
            for library in ${LIBRARIES:-}; do
                [ "$model" = cnn ] || ours "$library" "$model" "$workers"
            done
            [ -z "${TORCH:-}" ] || "$TORCH" "$here/torch_training.py" "$model" "$workers" "$seconds"
            [ -z "${TENSORFLOW:-}" ] || "$TENSORFLOW" "$here/tensorflow_training.py" "$model" "$workers" "$seconds"
        done
        [ -z "${APART:-}" ] || apart "$model"
    done
}

echo peer,model,workers,samples_per_s
for _ in $(seq "$rounds"); do
    one_round | tee -a "$rows"
done
echo
echo peer,model,workers,median_samples_per_s,of_ideal
LC_ALL=C sort -t, -k1,1 -k2,2 -k3,3n -k4,4n "$rows" | awk -F, '
    function ended(  median, ideal) {
        if (count == 0) return
        median = count % 2 ? values[(count + 1) / 2] : (values[count / 2] + values[count / 2 + 1]) / 2
        ideal = peer
        sub(/-apart$/, "", ideal)
        if (workers == 1) one[peer "," model] = median
        base = one[ideal "," model]
        printf "%s,%s,%s,%.1f,%s\n", peer, model, workers, median, base ? sprintf("%.2f", median / workers / base) : ""
    }
    { if ($1 "," $2 "," $3 != key) { ended(); key = $1 "," $2 "," $3; peer = $1; model = $2; workers = $3; count = 0 }
      values[++count] = $4 }
    END { ended() }'
