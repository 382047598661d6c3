"""Recorded decisions of Kubernetes: questions put to the engine, answers judged.

A module here named for a family (`-` written `_`) has `answer(question, machines)`: the engine's answer to
the vector's `input`, in the shape of its `expect`.
"""
