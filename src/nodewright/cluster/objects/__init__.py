"""TODO src/nodewright/cluster/objects"""
