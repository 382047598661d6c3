"""TODO src/nodewright/agent/state"""
