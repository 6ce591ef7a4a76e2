#!/bin/sh
# An operation among hosts of several ranks each: network namespaces, each with process ids of its
# own, that a link of so many Mbit/s ties to a bridge (0: as fast as the machine). Ranks of a host
# share memory, those of two go over QUIC. By each algorithm in turn, as root:
#
#     cargo build --release -p meshwork-cli
#     benches/peers/hosts.sh all-to-all direct,hierarchical [RATE_MBIT] [HOSTS] [RANKS_OF_EACH] [ROUNDS] [BYTES]
#
# Prints algorithm,peer,op,ranks,bytes,median_us,algbw_GBps,busbw_GBps.
set -eu
operation=$1 algorithms=$2 rate=${3:-1000} hosts=${4:-2} each=${5:-4} rounds=${6:-3} bytes=${7:-16K,256K,1M,4M}
meshwork=$(cd "$(dirname "$0")/../.." && pwd)/target/release/meshwork
MESHWORK_JOB_SECRET=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
export MESHWORK_JOB_SECRET

. "$(dirname "$0")/namespaces.sh"
namespaces mw-host 10.78.0 "$hosts" "$rate"
addresses=
for host in $(seq "$hosts"); do
    for rank in $(seq "$each"); do
        addresses="${addresses:+$addresses,}10.78.0.$host:$((47012 + rank))"
    done
done

measure() {
    command="$meshwork bench $operation --transport shm --algorithm $1 --bytes $bytes --csv --seconds 2 --hosts $addresses --rank"
    for host in $(seq "$hosts" -1 1); do
        first=$(((host - 1) * each))
        # The ranks of a host see each other's processes.
        ip netns exec "mw-host-$host" unshare --pid --fork --kill-child sh -c \
            "for rank in \$(seq $first $((first + each - 1))); do $command \$rank & done; wait" &
    done | sed -n "/^peer/d; s/^/$1,/p"
}

echo algorithm,peer,op,ranks,bytes,median_us,algbw_GBps,busbw_GBps
for _ in $(seq "$rounds"); do
    for algorithm in $(echo "$algorithms" | tr , ' '); do measure "$algorithm"; done
done
