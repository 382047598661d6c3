"""How do pods leave a node that is drained or shuts down?"""
