#!/bin/sh
# The main commands on examples and on this machine: no root, no cluster, nothing installed beside the package.
# A refusal (exit code 3) is an answer; an error ends the demonstration.
set -u
cd "$(dirname "$0")/.." || exit 1

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

say 'What does a pod ask for, and why that much?'
run nodewright requests -f examples/requests/init-containers.yaml

say 'Does a node take these pods? The verdicts, reasons and messages are those of its kubelet.'
run nodewright admit -f examples/admission/pods.yaml --node examples/nodes/worker.yaml

say 'Why not, and what would help? Every change that is told was tried.'
run nodewright explain -f examples/numa/split-pods.yaml --node examples/numa/split-node.yaml

say 'Who would have to go for a critical pod?'
run nodewright preempt -f examples/preemption/critical.yaml --node examples/preemption/node.yaml

say 'Pods come and go: what a node decides over time'
run nodewright replay examples/scenarios/fragmented.yaml

say 'What do the cgroup files say, and does a tree of them say it?'
run nodewright cgroups -f examples/cgroups/running.yaml --node examples/cgroups/node.yaml
run nodewright cgroups -f examples/cgroups/running.yaml --node examples/cgroups/node.yaml --diff examples/cgroups/tree

say 'This machine as a node, and what would become of the examples on it'
run nodewright node show
run nodewright admit -f examples/manifests --kubelet-config examples/kubelet/any-cgroup.yaml

say 'Machines that come with nodewright'
run nodewright node show --node laptop-i7-1370p

say 'Are these answers right? Recorded decisions of Kubernetes 1.36, put to the engine:'
run nodewright verify tests/conformance/vectors/quantity.jsonl.gz tests/conformance/vectors/pod-resources.jsonl.gz \
    tests/conformance/vectors/predicates.jsonl.gz tests/conformance/vectors/preemption.jsonl.gz
