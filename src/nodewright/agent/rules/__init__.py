"""TODO src/nodewright/agent/rules"""
