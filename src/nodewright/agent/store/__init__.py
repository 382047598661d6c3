"""What outlives the agent: pod records, state files and the journal, written in order."""
