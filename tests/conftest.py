"""What all tests share."""

import os

# One thread for the linear algebra, also in the processes that tests begin: on many small fits threads that wait for
# each other cost more than they bring. numpy reads this when it is imported, which is later.
os.environ.setdefault("OMP_NUM_THREADS", "1")
