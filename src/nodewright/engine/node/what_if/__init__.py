"""Single changes of a pod or node, tried: explanations and the smallest change that admits a pod."""
