"""The device manager: hints, allocation and release of devices."""
