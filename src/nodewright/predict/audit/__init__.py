"""Where a live node disagrees with itself: the facts of each source side by side; nothing is read, nothing written."""
