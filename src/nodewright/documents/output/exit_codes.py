"""Exit codes of commands: 0 yes; 1 error (input, machine, a mismatch in `verify`); 2 usage; 3 no or undecided."""

YES, ERROR, USAGE, NO = 0, 1, 2, 3
INTERRUPTED = 130
