"""TODO src/nodewright/documents"""
