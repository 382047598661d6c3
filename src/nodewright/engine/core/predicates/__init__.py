"""The kubelet's admission predicates, with every reason of a refusal and not only the first."""
