"""Tasks of a process that stays: clock, time limits, supervision, signals."""
