"""Numbers near the ends of float64."""

FAR = 1e300  # distances are cut here, so that every finite outcome has a finite log density
