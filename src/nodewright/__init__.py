"""The kubelet's resource decisions, predicted, explained and carried out."""
