"""TODO src/nodewright/engine/admission"""
