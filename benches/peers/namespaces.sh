# Hosts on one machine, for scripts that read this: network namespaces that a link of so many Mbit/s
# each ties to a bridge. They go when the script ends.

# namespaces NAME SUBNET COUNT RATE_MBIT: NAME-1 … NAME-COUNT, at SUBNET.1 … SUBNET.COUNT; with a rate
# of 0 as fast as the machine.
namespaces() {
    namespaces_name=$1 namespaces_count=$3
    trap remove_namespaces EXIT
    ip netns add mw-bridge
    ip -n mw-bridge link add bridge type bridge
    ip -n mw-bridge link set bridge up
    for number in $(seq "$3"); do
        ip netns add "$1-$number"
        ip -n "$1-$number" link add eth type veth peer name "port$number" netns mw-bridge
        ip -n "$1-$number" addr add "$2.$number/24" dev eth
        ip -n "$1-$number" link set lo up
        ip -n "$1-$number" link set eth up
        ip -n mw-bridge link set "port$number" master bridge up
        if [ "$4" -gt 0 ]; then
            # What it sends, and what is sent to it.
            tc -n "$1-$number" qdisc add dev eth root tbf rate "${4}mbit" burst 256kb latency 50ms
            tc -n mw-bridge qdisc add dev "port$number" root tbf rate "${4}mbit" burst 256kb latency 50ms
        fi
    done
}

remove_namespaces() {
    for number in $(seq "$namespaces_count"); do
        ip netns del "$namespaces_name-$number" 2>/dev/null || true
    done
    ip netns del mw-bridge 2>/dev/null || true
}
