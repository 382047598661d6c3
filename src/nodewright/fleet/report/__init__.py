"""Reports of fleet simulations: text, JSON documents and HTML pages."""
