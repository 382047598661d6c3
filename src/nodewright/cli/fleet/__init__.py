"""`nodewright fleet` and its subcommands."""
