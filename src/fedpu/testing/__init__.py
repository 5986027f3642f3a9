"""testing: the contract tests of the package, for anybody's class.

>>> from fedpu.testing import check_method
>>> check_method(MyMethod)              # silent, or an error that says which promise is broken

They train small networks on real digits, take a few seconds and need no test framework.
"""

from fedpu.testing.aggregation import check_aggregation
from fedpu.testing.method import check_method
from fedpu.testing.model import check_model
from fedpu.testing.partition import check_partition
from fedpu.testing.promise import ContractError

__all__ = ["ContractError", "check_aggregation", "check_method", "check_model", "check_partition"]
