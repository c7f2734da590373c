"""Python environments as they lie on disk: interpreters, distributions, scripts.

Both sides read them: packing to make layers, unpacking to prove that the base image holds what a
bundle counts on. Standard library only, and nothing of `importlib.metadata`, whose import alone
costs as much as reading sixty distributions here.
"""
