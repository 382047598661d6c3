"""In-place resize of a running pod: the decision, the plan and the report."""
