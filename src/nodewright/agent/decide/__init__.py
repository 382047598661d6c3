"""TODO src/nodewright/agent/decide"""
