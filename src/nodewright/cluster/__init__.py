"""TODO src/nodewright/cluster"""
