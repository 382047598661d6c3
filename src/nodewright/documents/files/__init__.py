"""TODO src/nodewright/documents/files"""
