"""The facts that decide, each with the kubelet's text and a sentence of ours; one module a manager."""
