"""TODO src/nodewright/engine"""
