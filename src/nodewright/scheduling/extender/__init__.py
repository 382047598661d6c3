"""Assembles `nodewright extender`: the cluster as reflectors and exports show it, the verbs over HTTPS, metrics."""
