#!/bin/sh
# All-reduces of 64 MiB between network namespaces that a link of so many Mbit/s ties to a bridge, as
# they are and compressed, in turn. As root:
#
#     cargo build --release -p meshwork-cli
#     benches/peers/compressed.sh [RATE_MBIT] [RANKS] [ROUNDS]
#
# Prints compress,peer,op,ranks,bytes,median_us,algbw_GBps,busbw_GBps.
set -eu
rate=${1:-1000} ranks=${2:-2} rounds=${3:-3}
meshwork=$(cd "$(dirname "$0")/../.." && pwd)/target/release/meshwork
secret=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')

. "$(dirname "$0")/namespaces.sh"
namespaces mw-rank 10.78.0 "$ranks" "$rate"
hosts=
for rank in $(seq "$ranks"); do
    hosts="${hosts:+$hosts,}10.78.0.$rank:47012"
done

measure() {
    for rank in $(seq "$ranks" -1 1); do
        set -- "$1" ip netns exec "mw-rank-$rank" env MESHWORK_JOB_SECRET="$secret" "$meshwork" bench \
            all-reduce --transport quic --bytes 64M --csv --seconds 3 --hosts "$hosts" --rank $((rank - 1))
        compress=$1 && shift
        if [ "$compress" != none ]; then set -- "$@" --compress "$compress"; fi
        if [ "$rank" -gt 1 ]; then
            "$@" >/dev/null &
        else
            "$@" | tail -n 1 | sed "s/^/$compress,/"
        fi
        set -- "$compress"
    done
    wait
}

echo compress,peer,op,ranks,bytes,median_us,algbw_GBps,busbw_GBps
for _ in $(seq "$rounds"); do
    for compress in none int8 int4; do measure "$compress"; done
done
