"""The version of the package and where it is installed from; the build reads the version from here, so that no command loads
what reads metadata.
"""

__version__ = "0.4.0"

SOURCE = "./nodewright"
"""What installers are given: a directory with the source, or a name, as packaging/published.toml says."""


def install_command(extra: str) -> str:
    """The command that installs the package with an extra.

    >>> install_command("agent")
    "pip install './nodewright[agent]'"
    """
    return f"pip install '{SOURCE}[{extra}]'"


def recordings_command() -> str:
    """The command that installs the recorded decisions.

    >>> recordings_command()
    "pip install './nodewright/packaging/recordings'"
    """
    return (
        f"pip install '{SOURCE}/packaging/recordings'"
        if "/" in SOURCE
        else f"pip install {SOURCE}-recordings"
    )
