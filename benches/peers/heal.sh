#!/bin/sh
# A newcomer gets the state of a training from givers, each in a network namespace that a link of so
# many Mbit/s ties to a bridge. As root:
#
#     cargo build --release -p meshwork-benches --bin heal
#     benches/peers/heal.sh [RATE_MBIT] [GIVERS] [BYTES] [MS]
#
# With MS the last giver is gone so long after it has begun to give. Prints
# role,bytes,givers,seconds,MB_per_s,peak_more_MiB,share_of_the_link.
set -eu
rate=${1:-1000} givers=${2:-2} bytes=${3:-256000000} dies=${4:-}
heal=$(cd "$(dirname "$0")/../.." && pwd)/target/release/heal
secret=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
all=$((givers + 1))

. "$(dirname "$0")/namespaces.sh"
namespaces mw-heal 10.79.0 "$all" "$rate"
addresses= seeds=
for number in $(seq "$givers"); do
    addresses="${addresses:+$addresses,}\"10.79.0.$number:47013\""
    seeds="${seeds:+$seeds,}10.79.0.$number:47013"
done

start() {
    number=$1 name=$2 value=$3
    ip netns exec "mw-heal-$number" env "$name=$value" MESHWORK_TRANSPORT=quic \
        MESHWORK_JOB_SECRET="$secret" MESHWORK_WORKERS="$givers:$all" \
        "$heal" --bytes "$bytes" --givers "$givers" ${dies:+--dies-after "$dies"}
}

echo role,bytes,givers,seconds,MB_per_s,peak_more_MiB,share_of_the_link
{
    for index in $(seq 0 $((givers - 1))); do
        task="\"task\":{\"type\":\"worker\",\"index\":$index}"
        start $((index + 1)) TF_CONFIG "{\"cluster\":{\"worker\":[$addresses]},$task}" &
    done
    start "$all" MESHWORK_SEEDS "$seeds"
    wait
} | awk -F, -v rate="$rate" '{ printf "%s,%.2f\n", $0, $5 * 8 / rate }'
