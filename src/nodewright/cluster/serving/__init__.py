"""The HTTPS server: connections, authentication, authorization, routes."""
