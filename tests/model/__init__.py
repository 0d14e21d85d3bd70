"""A model of how topic lists share questions and memory, explored in every order of steps, and held to the real code.

`rules.py` has the states and steps, `explorer.py` visits all of them, `real.py` plays the same steps on the real
groups and semaphores, `path.py` on the whole path of a list. Nothing in the rules is taken from the code that they
describe.
"""
