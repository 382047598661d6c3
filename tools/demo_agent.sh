#!/bin/sh
# The agent on this machine: pods, pinning, eviction, a killed agent whose pods go on. Needs root and cgroups; everything
# that it makes is below a directory and a cgroup of its own, and is gone afterwards.
set -u
cd "$(dirname "$0")/.." || exit 1
[ "$(id -u)" = 0 ] || { echo 'python -m tools demo-agent needs root: pods get cgroups of their own' >&2; exit 1; }

at=$(mktemp -d /tmp/nodewright-demo.XXXXXX)
root=/nodewright-demo-$$
NODEWRIGHT_SOCKET=$at/agent.sock
export NODEWRIGHT_SOCKET
agent=
plugin=

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n# %s\n' "$*"; }

run() {
    printf '\n$ %s\n' "$*"
    "$@"
    code=$?
    case $code in
        0) ;;
        3) printf '(exit code 3: the answer is no)\n' ;;
        *) printf 'the demonstration ends here: exit code %s\n' "$code" >&2; exit "$code" ;;
    esac
}

begin() {
    nodewright agent --config "$at/kubelet.yaml" --pod-manifest-path "$at/static" --root-dir "$at/root" \
        --cgroup-root "$root" --node-name demo "$@" 2>>"$at/agent.log" &
    agent=$!
    tries=0
    until nodewright get node >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] && kill -0 $agent 2>/dev/null || { cat "$at/agent.log" >&2; exit 1; }
        sleep 0.5
    done
}

tidy() {
    [ -z "$plugin" ] || kill "$plugin" 2>/dev/null
    if [ -n "$agent" ] && kill -0 "$agent" 2>/dev/null; then kill "$agent"; wait "$agent" 2>/dev/null; fi
    # Whatever the demonstration has come to: what is left below our own group ends.
    for tree in /sys/fs/cgroup /sys/fs/cgroup/*; do
        [ -d "$tree$root" ] || continue
        find "$tree$root" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u | while read -r pid; do
            kill -9 "$pid" 2>/dev/null
        done
        sleep 0.1
        find "$tree$root" -depth -type d -exec rmdir {} + 2>/dev/null
    done
    rm -rf "$at"
}
trap tidy EXIT
trap 'exit 130' INT TERM

mkdir "$at/static"
total=$(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo)
cat > "$at/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
systemReserved: {cpu: 500m, memory: $((total - 612))Mi}
evictionHard: {memory.available: 100Mi}
YAML

say 'A node of this machine: half a CPU is kept for the system, pods have 512Mi of memory'
run cat "$at/kubelet.yaml"
begin
run nodewright get node -o wide

say 'A static pod from a directory, and two that are asked for'
cp examples/agent/web.yaml "$at/static/"
run nodewright run -f examples/agent/pinned.yaml
sleep 2.5
run nodewright get pods -o wide
run nodewright logs pinned
run nodewright describe pod pinned

say 'What finds no room says so, and what would help'
run nodewright run -f examples/agent/too-big.yaml
nodewright describe pod too-big | sed -n '/^Why/,/^Events/p'
run nodewright delete too-big

say 'A device plugin registers, with four GPUs that are made up; a pod gets two of them'
python examples/device-plugin/plugin.py --directory "$at/root/device-plugins" --resource example.com/gpu \
    --prefers highest gpu-0@0 gpu-1@0 gpu-2@0 gpu-3@0 >>"$at/plugin.log" 2>&1 &
plugin=$!
tries=0
until nodewright get node -o yaml | grep -q example.com/gpu || [ $tries -ge 40 ]; do
    tries=$((tries + 1))
    sleep 0.5
done
run nodewright run -f examples/device-plugin/trainer.yaml
sleep 1
run nodewright get pods -o wide
run nodewright logs trainer

say 'The agent is killed; its pods go on, and the next agent takes them over'
run kill -9 "$agent"
wait "$agent" 2>/dev/null
begin
run nodewright get pods -o wide
run nodewright logs web-demo --tail 2

say 'A pod that grows is ended before memory runs out'
run nodewright run -f examples/agent/greedy.yaml
tries=0
until nodewright get events | grep -q Evicted || [ $tries -ge 40 ]; do
    tries=$((tries + 1))
    sleep 0.5
done
run nodewright top pods
run nodewright get pods
run nodewright get events

say 'The end: all pods end, by priority'
kill "$agent"
wait "$agent"
begin --drain-on-exit
kill "$agent"
wait "$agent"
agent=
run tail -n 3 "$at/agent.log"
