"""Scripts that keep the project in order; `make` calls them and tests read them."""
