"""TODO src/nodewright/cluster/serving"""
