"""The demo: real reviews of real learners, put in the way that the product puts them in.

`load` is all there is to call. The data, its licences and what was done to it are in data/.
"""

from worker.demo.loader import load

__all__ = ["load"]
