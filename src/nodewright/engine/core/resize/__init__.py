"""In-place resize: allocation, order of pending resizes, infeasibility and container restarts."""
