"""Resource quotas: what objects are charged, what is in use, and which requests are forbidden."""
