"""TODO src/nodewright/cluster/tasks"""
