"""flower: how messages travel. Flower's processes and ports, what its messages hold, and the wait for answers.

It knows nothing of methods and engines, which stand to its right. What needs Flower is imported from its modules, not
from here. Whatever relies on parts of Flower that are not its public API comes from :mod:`private`.
"""
