"""TODO src/nodewright/model"""
