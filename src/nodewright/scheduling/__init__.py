"""TODO src/nodewright/scheduling"""
