"""What came of fleets: tables, documents, pages."""
