"""The dashboard over HTTP: pages, the document that they show, and its sections."""
