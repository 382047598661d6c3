"""TODO src/nodewright/cluster/exports"""
