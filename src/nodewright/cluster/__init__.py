"""Traffic with API servers and over HTTPS: one client, and the server that agent, exporter and extender share."""
