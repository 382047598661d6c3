"""Recorded decisions of Kubernetes (test vectors), and the comparison of the engine's answers with them.

A module here named for a family (`-` written `_`) has `answer(question, machines)`: the engine's answer to
the vector's `input`, in the shape of its `expect`.
"""
