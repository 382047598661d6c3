"""Node-pressure eviction: thresholds, ranking, the manager over time, and admission under pressure."""
