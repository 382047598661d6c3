"""The environment of a container: variables, command, files of its volumes, hostname and DNS."""
